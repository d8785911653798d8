package email

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// Backoff is the delay after the first, second, … attempt; the last entry applies to all further attempts. Emails and
// webhook deliveries have one. Tasks that fail with an internal error have a delay of their own: retrydelay.go of
// asynqueue for emails, backoff.go of rabbitmq for bulk jobs.
type Backoff []time.Duration

// backoffJitter is the maximum relative deviation of a delay, so that emails refused together are
// not retried together.
const backoffJitter = 0.25

// MaxAttempts is the default of EMAIL_MAX_ATTEMPTS, which limits the counted attempts: see Tries. Throttled attempts
// end only with the email's deadline.
const MaxAttempts = 5

// AttemptLimit is the maximum of EMAIL_MAX_ATTEMPTS.
const AttemptLimit = 100

// Delay returns the delay after attempt n (1 for the first), throttled ones included, with a random jitter.
func (b Backoff) Delay(n int) time.Duration { return b.delayAt(n, rand.Float64()) }

// MaxDelay returns the longest delay after attempt n.
func (b Backoff) MaxDelay(n int) time.Duration { return b.delayAt(n, 1) }

// delayAt returns the delay with the jitter that u in [0, 1] selects.
func (b Backoff) delayAt(n int, u float64) time.Duration {
	base := b[min(max(n, 1), len(b))-1]
	return time.Duration(float64(base) * (1 - backoffJitter + 2*backoffJitter*u))
}

const (
	// outageAttempt is the last attempt whose delay grows during a provider outage of up to half an hour.
	outageAttempt = 4
	// longOutageAttempt is the attempt from which on the delay doubles, up to longOutageDelay: with the default table
	// it is made after half an hour.
	longOutageAttempt = 20
	longOutageDelay   = time.Hour
)

// OutageDelay is the delay after attempt n of an email that an outage left with an unknown outcome. Each further attempt may be
// delivered again, but such emails may be the only ones that detect the end of the outage. So the delay is at most the fourth
// of the table for half an hour, and doubles after that: an outage of a day costs some 50 attempts and not 700.
func (b Backoff) OutageDelay(n int) time.Duration { return b.outageDelayAt(n, rand.Float64()) }

func (b Backoff) outageDelayAt(n int, u float64) time.Duration {
	d := b.delayAt(min(n, outageAttempt), u)
	for range n - longOutageAttempt {
		if 2*d > longOutageDelay {
			return max(d, longOutageDelay)
		}
		d *= 2
	}
	return d
}

// UnmarshalText parses "1s,5s,30s,2m,10m".
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
