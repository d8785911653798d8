package command

import (
	"cmp"
	"strconv"
	"time"

	"email-gateway/shared/email"
)

// EmailMaxAttempts returns EMAIL_MAX_ATTEMPTS, with the default of the api and worker.
func (c *Invocation) EmailMaxAttempts() (int, error) {
	allowed, err := strconv.Atoi(cmp.Or(c.Getenv("EMAIL_MAX_ATTEMPTS"), strconv.Itoa(email.MaxAttempts)))
	if err != nil {
		return 0, Usagef("EMAIL_MAX_ATTEMPTS must be a number")
	}
	return allowed, nil
}

// EmailTTL returns the deadline (from now) of a retried email.
func (c *Invocation) EmailTTL() (time.Duration, error) {
	ttl, err := time.ParseDuration(cmp.Or(c.Getenv("EMAIL_TTL"), email.DefaultTTL.String()))
	if err != nil || !email.IsTTL(ttl) {
		return 0, Usagef("EMAIL_TTL %s, as for the api", email.TTLRange)
	}
	return ttl, nil
}
