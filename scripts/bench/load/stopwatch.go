package load

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"email-gateway/shared/service"
)

// Stopwatch measures the time from the submission of an email until SES receives it. It identifies
// emails by their address.
type Stopwatch struct {
	mu   sync.Mutex
	left map[string]time.Time
	took []time.Duration
}

// NewStopwatch returns a Stopwatch without emails.
func NewStopwatch() *Stopwatch { return &Stopwatch{left: make(map[string]time.Time)} }

// Leave records the submission of the email to this address.
func (s *Stopwatch) Leave(to string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left[to] = time.Now()
}

// Arrive records the body of a SendEmail. It ignores other emails.
func (s *Stopwatch) Arrive(body []byte) {
	at := time.Now()
	var request struct {
		Destination struct{ ToAddresses []string }
	}
	if err := json.Unmarshal(body, &request); err != nil || len(request.Destination.ToAddresses) != 1 {
		return
	}
	to := request.Destination.ToAddresses[0]
	s.mu.Lock()
	defer s.mu.Unlock()
	if left, ok := s.left[to]; ok {
		s.took = append(s.took, at.Sub(left))
		delete(s.left, to)
	}
}

// arrivalTimeout is the timeout for the last emails.
const arrivalTimeout = time.Minute

// All waits until every submitted email has arrived, returns their times in ascending order, and
// resets the stopwatch.
func (s *Stopwatch) All(ctx context.Context) ([]time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, arrivalTimeout)
	defer cancel()
	for {
		s.mu.Lock()
		missing, took := len(s.left), s.took
		if missing == 0 {
			s.took = nil
		}
		s.mu.Unlock()
		if missing == 0 {
			slices.Sort(took)
			return took, nil
		}
		if service.Pause(ctx, 5*time.Millisecond) != nil {
			return nil, fmt.Errorf("%d emails of %d did not reach SES within %s", missing, missing+len(took), arrivalTimeout)
		}
	}
}

// Percentile of sorted times, by nearest rank: the smallest one that p per cent of all do not
// exceed. In milliseconds.
func Percentile(sorted []time.Duration, p float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return float64(sorted[max(rank, 1)-1]) / float64(time.Millisecond)
}
