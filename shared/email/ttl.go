package email

import "time"

// DefaultTTL is the default of EMAIL_TTL, the deadline of an email. A shorter one than MinTTL leaves no time for retries, and a
// longer one than MaxTTL keeps rows in the outbox for too long.
const (
	DefaultTTL = 24 * time.Hour
	MinTTL     = time.Minute
	MaxTTL     = 720 * time.Hour
)

// TTLRange is the text of an error.
const TTLRange = "must be 1m to 720h"

// IsTTL reports whether a value of EMAIL_TTL is valid. Every program that reads the variable has this rule: it gives emails a
// new deadline.
func IsTTL(ttl time.Duration) bool { return ttl >= MinTTL && ttl <= MaxTTL }
