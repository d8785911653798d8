package email

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Backoff is how long to wait after the first, second, … try; the last entry holds
// for every further one.
type Backoff []time.Duration

// BackoffJitter is how far a wait may lie from its table entry, to either side, so
// that emails refused together do not come back together.
const BackoffJitter = 0.25

// MaxAttempts is how many tries an email has. Tries that ended in a provider's
// quota are not counted: only the deadline ends those.
const MaxAttempts = 5

// AttemptLimit is the most that EMAIL_MAX_ATTEMPTS can make of it.
const AttemptLimit = 100

// DefaultBackoff is the contract's table: 1 s, 5 s, 30 s, 2 min, 10 min.
func DefaultBackoff() Backoff {
	return Backoff{time.Second, 5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute}
}

// Delay is the wait after try n (1 for the first). u is a random number in [0, 1)
// that places the wait within the jitter.
func (b Backoff) Delay(n int, u float64) time.Duration {
	base := b[min(max(n, 1), len(b))-1]
	return time.Duration(float64(base) * (1 - BackoffJitter + 2*BackoffJitter*u))
}

// outageTry is the last try whose wait grows during an outage of the provider.
const outageTry = 4

// OutageDelay is the wait after try n of an email that an outage has left with an unknown outcome: the
// fourth of the table at most. Each further try may reach the reader again, so the wait grows at first; and
// such emails may be the only ones that can notice the end of the outage, so it does not grow further,
// however many tries a long outage takes.
func (b Backoff) OutageDelay(n int, u float64) time.Duration {
	return b.Delay(min(n, outageTry), u)
}

// UnmarshalText reads "1s,5s,30s,2m,10m".
func (b *Backoff) UnmarshalText(text []byte) error {
	parts := strings.Split(string(text), ",")
	table := make(Backoff, len(parts))
	for i, part := range parts {
		d, err := time.ParseDuration(strings.TrimSpace(part))
		if err != nil {
			return fmt.Errorf("must be durations such as 1s,5s,30s: %w", err)
		}
		if d <= 0 {
			return errors.New("must be durations such as 1s,5s,30s, each longer than 0")
		}
		table[i] = d
	}
	*b = table
	return nil
}
