package breaker

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	breakerstore "email-gateway/shared/store/breaker"
	"email-gateway/worker/internal/provider"
)

// suspended returns the Suspension of a process that is suspended from now on.
func suspended(t *testing.T, f *provider.Failure) *Suspension {
	t.Helper()
	s := new(Suspension)
	s.concerned(7, time.Now())
	if suspended, begins := s.failed(Call{Pass: breakerstore.Pass{Openings: 7}}, f, time.Now()); !suspended || !begins {
		t.Fatalf("suspended %v, from now on %v", suspended, begins)
	}
	return s
}

// Without an opening of this process that another one has closed, a failure does not suspend it.
func TestSuspension_Begins(t *testing.T) {
	t.Parallel()
	refused := &provider.Failure{Outcome: provider.Park, Code: "SES_AUTH_FAILED"}
	for name, c := range map[string]struct {
		pass breakerstore.Pass
		want bool
	}{
		"claimed before the opening":          {breakerstore.Pass{Openings: 6}, false},
		"a probe":                             {breakerstore.Pass{Openings: 7, Probe: true}, false},
		"claimed after the closing":           {breakerstore.Pass{Openings: 7}, true},
		"claimed after the closing of others": {breakerstore.Pass{Openings: 9}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var s Suspension
			call := Call{Email: uuid.New(), Pass: c.pass}
			if got, _ := s.failed(call, refused, time.Now()); got {
				t.Error("suspended without an opening")
			}
			s.concerned(7, time.Now())
			if got, begins := s.failed(call, refused, time.Now()); got != c.want || begins != c.want || (s.Suspended() != nil) != c.want {
				t.Errorf("suspended %v, from now on %v, %v; want %v", got, begins, s.Suspended(), c.want)
			}
			if !c.want {
				return
			}
			if got, begins := s.failed(Call{}, refused, time.Now()); !got || begins {
				t.Errorf("the next failure: suspended %v, from now on %v", got, begins)
			}
			if s.recordSuccess(Call{Began: time.Now().Add(-time.Minute)}) || s.Suspended() == nil {
				t.Error("ended by a call from before the opening")
			}
			if !s.recordSuccess(Call{Began: time.Now()}) || s.Suspended() != nil {
				t.Error("not ended by an accepted email")
			}
		})
	}
}

// An accepted email disproves the opening, also one that a probe of this process closed.
func TestSuspension_AcceptedSince(t *testing.T) {
	t.Parallel()
	var s Suspension
	s.concerned(1, time.Now().Add(-time.Minute))
	if s.recordSuccess(Call{Began: time.Now()}) {
		t.Error("ended a suspension that had not begun")
	}
	if got, _ := s.failed(Call{Pass: breakerstore.Pass{Openings: 1}}, &provider.Failure{Outcome: provider.Park}, time.Now()); got {
		t.Error("suspended")
	}
}

// The time between two emails doubles up to a minute, and begins anew while the sender may be the cause.
func TestSuspension_Trials(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		failure *provider.Failure
		want    []time.Duration
	}{
		"an outage": {&provider.Failure{Outcome: provider.Unknown, Outage: true, Code: "SES_TIMEOUT"}, []time.Duration{5, 10, 20, 40, 60, 60}},
		"a refusal that may concern the sender": {
			&provider.Failure{Outcome: provider.Park, Ambiguous: true, Code: "SES_ACCESS_DENIED"}, []time.Duration{5, 5, 5, 5},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := suspended(t, c.failure)
				for i, want := range c.want {
					start := time.Now()
					if err := s.Await(t.Context()); err != nil {
						t.Fatal(err)
					}
					if waited := time.Since(start); waited != want*time.Second {
						t.Errorf("email %d after %s, want %s", i+1, waited, want*time.Second)
					}
					s.Used()
					s.failed(Call{Pass: breakerstore.Pass{Openings: 7}}, c.failure, time.Now())
				}
			})
		})
	}
}

// Several goroutines wait: one of them may take an email, and again when there was none to take.
func TestSuspension_OneAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := suspended(t, &provider.Failure{Outcome: provider.Retry, Outage: true, Code: "NETWORK_ERROR"})
		start := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		admitted := make(chan time.Duration, 8)
		for range cap(admitted) {
			go func() {
				if s.Await(ctx) == nil {
					admitted <- time.Since(start)
				}
			}()
		}
		if at := <-admitted; at != firstTrial {
			t.Errorf("the first after %s", at)
		}
		synctest.Wait()
		if len(admitted) > 0 {
			t.Error("two at a time")
		}
		s.Unused()
		if err := s.Await(t.Context()); err != nil || time.Since(start) != firstTrial {
			t.Errorf("after an empty queue: %v after %s", err, time.Since(start))
		}
		s.Used()
		if !s.recordSuccess(Call{Began: time.Now()}) {
			t.Error("not ended")
		}
		synctest.Wait()
		if len(admitted) != cap(admitted)-1 {
			t.Errorf("%d of the waiting are admitted at the end", len(admitted))
		}
		cancel()
		if err := suspended(t, &provider.Failure{Outage: true, Code: "NETWORK_ERROR"}).Await(ctx); err == nil {
			t.Error("admitted after the end of the context")
		}
	})
}

// A quota is used up for all processes: that another one sent what became free says nothing about this one.
func TestSuspension_NotByAQuota(t *testing.T) {
	t.Parallel()
	var s Suspension
	s.concerned(7, time.Now())
	spent := &provider.Failure{Outcome: provider.Park, Category: provider.QuotaError, AccountWide: true}
	if got, _ := s.failed(Call{Pass: breakerstore.Pass{Openings: 7}}, spent, time.Now()); got || s.Suspended() != nil {
		t.Error("suspended")
	}
}
