package email

import "fmt"

// Tries is an email's number of tries: those that count, the maximum, and those refused by a
// provider's quota or made during an outage.
type Tries struct {
	Spent     int `json:"spent"`
	Allowed   int `json:"allowed"`
	Throttled int `json:"throttled"`
}

// TriesOf returns the tries of an email with these attempts, of which throttles were refused by a
// quota or made during an outage.
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
