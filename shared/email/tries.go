package email

import "fmt"

// Tries says how many tries an email has had, the same everywhere: those that count, of
// those that it may have, and beside them those that a provider's quota or outage ended.
type Tries struct {
	Spent     int `json:"spent"`
	Allowed   int `json:"allowed"`
	Throttled int `json:"throttled"`
}

// TriesOf are the tries of an email with these attempts, throttles of which were refused by a quota or met an outage.
func TriesOf(attempts, throttles, allowed int) Tries {
	return Tries{Spent: attempts - throttles, Allowed: allowed, Throttled: throttles}
}

// String is "2 of 5", or "2 of 5, and 1 throttled".
func (t Tries) String() string {
	text := fmt.Sprintf("%d of %d", t.Spent, t.Allowed)
	if t.Throttled > 0 {
		text += fmt.Sprintf(", and %d throttled", t.Throttled)
	}
	return text
}
