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
	ttl, err := time.ParseDuration(cmp.Or(c.Getenv("EMAIL_TTL"), "24h"))
	if err != nil || ttl < time.Minute || ttl > 720*time.Hour {
		return 0, Usagef("EMAIL_TTL must be 1m to 720h, as for the api")
	}
	return ttl, nil
}
