package pipeline_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store/outbox"
	"email-gateway/worker/internal/elapsed/elapsedtest"
	"email-gateway/worker/internal/pipeline"
	"email-gateway/worker/internal/provider"
	"email-gateway/worker/internal/queue"
)

// abandon ends the email's attempt as the rescuer does after the lease, with a feedback window.
func (b *bench) abandon(t *testing.T, id uuid.UUID) {
	t.Helper()
	b.exec(t, `UPDATE email_outbox SET lease_until = now() - interval '6 s' WHERE id = $1`, id)
	var token uuid.UUID
	if err := b.SQL.QueryRowContext(t.Context(), `SELECT claim_token FROM email_outbox WHERE id = $1`, id).Scan(&token); err != nil {
		t.Fatal(err)
	}
	done, err := b.Store.Advance(t.Context(), outbox.Transition{
		ID: id, Guard: outbox.GuardAbandoned, Token: token, Status: email.OutcomeUnknown, OutcomeUnknown: true, Delay: 2 * time.Minute,
		Events: []email.Event{{Type: email.EventOutcomeUnknown, At: time.Now()}},
	})
	if err != nil || !done.Applied {
		t.Fatalf("abandon: %+v, %v", done, err)
	}
}

// expectRetryFields checks the event and the log of a retry that is due at once, and is the first try again.
func (b *bench) expectRetryFields(t *testing.T, id uuid.UUID, code string) {
	t.Helper()
	timeline, err := b.Store.Timeline(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(timeline[len(timeline)-1].Metadata, &got); err != nil {
		t.Fatal(err)
	}
	if got["errorCode"] != code || got["errorCategory"] != "TRANSIENT_ERROR" || got["willRetry"] != true || got["nextAttemptNumber"] != 1.0 || got["backoffDelay"] != 0.0 {
		t.Errorf("metadata %v", got)
	}
	if e := b.find(t, id); e.ErrorCode == nil || *e.ErrorCode != code {
		t.Errorf("the log has %v, want %s", e.ErrorCode, code)
	}
}

// The rescuer has ended an attempt as unknown, and then the worker, which knows that SES got nothing, can write again: the
// email is sent, whatever its delivery policy, and the try does not count.
func TestHandle_LateReleaseMakesOutcomeKnown(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		lost    bool // the claim's answer
		failure *provider.Failure
		calls   int
		code    string
	}{
		"the claim's answer was lost": {lost: true, calls: 1, code: email.CodeAttemptAbandoned},
		"no connection to SES": {
			failure: &provider.Failure{Outcome: provider.Unspent, Code: "NETWORK_ERROR", Category: provider.TransientError}, calls: 2, code: "NETWORK_ERROR",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var b *bench
			claims := 0
			b = newBench(t, func(p *pipeline.Params) {
				p.FeedbackWindow = 2 * time.Minute
				p.Advancer = &interrupted{p.Advancer, func(tr outbox.Transition) (before, after bool) {
					if !tt.lost || tr.Guard != outbox.GuardClaim {
						return false, false
					}
					if claims++; claims == 2 {
						b.abandon(t, tr.ID)
					}
					return claims == 2, claims == 1
				}}
			})
			id := b.Accept(t, b.company, func(e *outbox.NewEmail) { e.Delivery = email.AtMostOnce })
			if tt.failure != nil {
				b.sender.fail(1, *tt.failure)
				b.sender.during = func() {
					b.abandon(t, id)
					b.sender.during = nil
				}
			}
			if err := b.handle(t, id); err != nil {
				t.Fatal(err)
			}
			b.expect(t, id, email.RetryScheduled, 0, 0)
			if got, want := b.events(t, id), timeline(firstTry, email.EventOutcomeUnknown, email.EventRetryScheduled); !slices.Equal(got, want) {
				t.Errorf("events %v, want %v", got, want)
			}
			if b.hasTask(t, id) {
				t.Error("the email waits for a task that is acknowledged")
			}
			b.expectRetryFields(t, id, tt.code)
			if err := b.pipeline.Handle(context.WithoutCancel(t.Context()), b.task(t, id)); err != nil { // it is due
				t.Fatal(err)
			}
			b.expect(t, id, email.Sent, 1, 0)
			if len(b.sender.sent) != tt.calls {
				t.Errorf("%d calls, want %d", len(b.sender.sent), tt.calls)
			}
			if e := b.find(t, id); e.PossibleDuplicate {
				t.Error("it is flagged as a possible duplicate")
			}
		})
	}
}

// After an outage in which the result of a try could not be recorded, the queue may have given the task to another worker,
// which acknowledges it. So the retry must not wait for the task, unless the row says that it does.
func TestHandle_LateRetryWaitsForNoTask(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]bool{"not written": false, "written, the answer lost": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tries := 0
			b := newBench(t, func(p *pipeline.Params) {
				p.Advancer = &interrupted{p.Advancer, func(tr outbox.Transition) (before, after bool) {
					if tr.Guard != outbox.GuardAttempt {
						return false, false
					}
					tries++
					return tries == 1 && !lost, tries == 1 && lost
				}}
			})
			b.sender.fail(1, provider.Failure{Outcome: provider.Retry, Code: "X", Category: provider.TransientError})
			id := b.Accept(t, b.company, nil)
			err := b.handle(t, id)
			b.expect(t, id, email.RetryScheduled, 1, 0)
			var later *queue.RetryLater
			if waits := errors.As(err, &later); waits != lost || b.hasTask(t, id) != lost {
				t.Errorf("the task ends with %v; the email waits for it: %v, want %v", err, b.hasTask(t, id), lost)
			}
		})
	}
}

// suspended claims emails as on a machine that is suspended right after the claim: its wall clock is then ahead, and
// its monotonic clock has stood still.
type suspended struct {
	pipeline.Advancer
	length time.Duration
}

func (s suspended) Advance(ctx context.Context, t outbox.Transition) (outbox.Advanced, error) {
	done, err := s.Advancer.Advance(ctx, t)
	if t.Guard == outbox.GuardClaim {
		done.LeaseUntil = elapsedtest.BeforeSuspension(done.LeaseUntil, s.length)
	}
	return done, err
}

// A machine that was suspended after the claim makes no call: a dispatcher may have ended the attempt, and the tenant may have
// cancelled the email.
func TestHandle_SuspendedAfterClaim(t *testing.T) {
	t.Parallel()
	for length, sent := range map[time.Duration]bool{5 * time.Second: true, 40 * time.Second: false, time.Hour: false} {
		b := newBench(t, func(p *pipeline.Params) { p.Advancer = suspended{p.Advancer, length} })
		id := b.Accept(t, b.company, nil)
		if err := b.handle(t, id); err != nil {
			t.Fatal(err)
		}
		if got := len(b.sender.sent) == 1; got != sent {
			t.Errorf("suspended for %s: %d calls", length, len(b.sender.sent))
		}
		if got := b.find(t, id).Status == email.Sent; got != sent {
			t.Errorf("suspended for %s: the email is %s", length, b.find(t, id).Status)
		}
	}
}

// A standby is promoted that has not received the claim: the worker, which knows the answer, records it, and the email is not
// sent again.
func TestHandle_SentAfterALostClaim(t *testing.T) {
	t.Parallel()
	for _, status := range []email.Status{email.Pending, email.Enqueued} {
		t.Run(string(status), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, nil)
			id := b.Accept(t, b.company, nil)
			b.sender.during = func() {
				b.exec(t, `UPDATE email_outbox SET status = $2, attempts = 0, claim_token = NULL, lease_until = NULL WHERE id = $1`, id, status)
				b.exec(t, `DELETE FROM email_events WHERE email_log_id = $1`, id)
				b.exec(t, `DELETE FROM email_logs WHERE outbox_id = $1`, id)
			}
			if err := b.handle(t, id); err != nil {
				t.Fatal(err)
			}
			b.sender.during = nil
			b.expect(t, id, email.Sent, 0, 0)
			if got := b.events(t, id); !slices.Equal(got, []email.EventType{email.EventSent}) {
				t.Errorf("events %v", got)
			}
			if err := b.pipeline.Handle(t.Context(), b.task(t, id)); err != nil || len(b.sender.sent) != 1 {
				t.Errorf("%v; %d calls", err, len(b.sender.sent))
			}
		})
	}
}
