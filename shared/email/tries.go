package email

import "fmt"

// Tries is how an email's attempts count. An attempt is one claim of an email by a worker (email_outbox.attempts). An
// attempt that a quota or an outage ended is throttled (email_outbox.throttles) and does not count. EMAIL_MAX_ATTEMPTS
// limits the counted attempts: attempts − throttles.
type Tries struct {
	Spent     int `json:"spent"`
	Allowed   int `json:"allowed"`
	Throttled int `json:"throttled"`
}

// TriesOf returns the tries of an email with these attempts, of which throttles do not count.
func TriesOf(attempts, throttles, allowed int) Tries {
	return Tries{Spent: attempts - throttles, Allowed: allowed, Throttled: throttles}
}

// String returns "2 of 5", or "2 of 5, and 1 throttled".
func (t Tries) String() string {
	text := fmt.Sprintf("%d of %d", t.Spent, t.Allowed)
	if t.Throttled > 0 {
		text += fmt.Sprintf(", and %d throttled", t.Throttled)
	}
	return text
}
