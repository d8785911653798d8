package breaker

import (
	"context"
	"fmt"
	"sync"
	"time"

	"email-gateway/worker/internal/provider"
)

const (
	// firstTrial is the time from the beginning of a suspension to its first email: that between two
	// probes of the breaker. The time doubles with each email, up to lastTrial, because a worker whose
	// responses are lost delivers each of them and does not know it.
	firstTrial = 5 * time.Second
	lastTrial  = time.Minute
)

// Suspension prevents a fault that only this process has, such as wrong credentials or a broken network, from opening the
// breaker for the other workers. The evidence of such a fault: a call of this process opened the
// breaker, or the provider rejected its probe, another process closed the breaker, and the provider has accepted no email of this
// process since.
// The next failure does not open the breaker again. It suspends this process, which then takes one
// email after each delay until the provider accepts one.
//
// A process that is the only worker closes the breaker with its own probe, and is never suspended.
type Suspension struct {
	mu      sync.Mutex
	opening int64         // number of the last opening by this process, or during which its probe failed; 0 = the provider has accepted an email since
	since   time.Time     // when that was
	code    string        // of the failure that suspended this process; "" = not suspended
	next    time.Time     // when the next email may be taken
	delay   time.Duration // from then to the email after it
	trial   bool          // an email may be taken and has not been yet
	ended   chan struct{} // closed at the end of the suspension
}

// concerned records that a call of this process opened the breaker, or was a probe that failed, and the number of the opening.
func (s *Suspension) concerned(opening int64, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opening, s.since = opening, now
}

// begins reports whether the failure would suspend this process.
func (s *Suspension) begins(c Call, f *provider.Failure) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.code == "" && s.isEvidence(c, f)
}

// isEvidence is called with mu locked.
func (s *Suspension) isEvidence(c Call, f *provider.Failure) bool {
	// A quota is used up for all processes. Who gets what becomes free says nothing about the others.
	return s.opening != 0 && !c.Pass.Probe && c.Pass.Openings >= s.opening && f.Category != provider.QuotaError
}

// failed reports whether the process is suspended, so that a failure that does not concern the email
// alone must not open the breaker, and whether this failure suspended it. A call that is no probe
// was claimed while the breaker was closed: from that opening on, another process must have closed it.
func (s *Suspension) failed(c Call, f *provider.Failure, now time.Time) (suspended, begins bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.code == "" {
		if !s.isEvidence(c, f) {
			return false, false
		}
		s.code, s.ended, begins = f.Code, make(chan struct{}), true
		s.next, s.delay = now.Add(firstTrial), 2*firstTrial
	}
	if f.Ambiguous { // The cause may be the sender. An email of another one must not wait longer for its turn.
		s.next, s.delay = now.Add(firstTrial), firstTrial
	}
	return true, begins
}

// concernsProvider reports whether the failure does not, or not certainly, concern the email alone.
func concernsProvider(f *provider.Failure) bool {
	return f.Outcome == provider.Park || f.Outcome == provider.Unreadable || f.AccountWide || f.Outage && !f.Incomplete
}

// recordSuccess records a call which shows that the provider accepts emails of this process, and reports
// whether it ended a suspension.
func (s *Suspension) recordSuccess(c Call) (ended bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opening == 0 || !c.Began.After(s.since) {
		return false
	}
	if ended = s.code != ""; ended {
		close(s.ended)
	}
	s.opening, s.code, s.trial = 0, "", false
	return ended
}

// Suspended returns an error while the process is suspended.
func (s *Suspension) Suspended() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.code == "" {
		return nil
	}
	return fmt.Errorf("worker suspended: the provider accepts emails of other workers but none of this one (%s)", s.code)
}

// Await returns when an email may be taken from the queue: at once, unless the process is suspended.
// Used or Unused must follow.
func (s *Suspension) Await(ctx context.Context) error {
	for {
		wait, ended := s.turn()
		if wait <= 0 {
			return nil
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ended:
		case <-ctx.Done():
		}
		timer.Stop()
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
	}
}

// turn returns how long to wait. Without a wait, the caller may take an email.
func (s *Suspension) turn() (wait time.Duration, ended <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.code == "" {
		return 0, nil
	}
	now := time.Now()
	if wait = s.next.Sub(now); wait > 0 {
		return wait, s.ended
	}
	s.trial, s.next = true, now.Add(s.delay)
	return 0, nil
}

// Used records that an email was taken.
func (s *Suspension) Used() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.trial {
		s.trial, s.delay = false, min(2*s.delay, lastTrial)
	}
}

// Unused records that there was no email to take: the next one need not wait.
func (s *Suspension) Unused() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.trial {
		s.trial, s.next = false, time.Time{}
	}
}
