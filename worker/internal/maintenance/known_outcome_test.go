package maintenance_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/shared/email"
	"email-gateway/shared/email/emailtest"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/storetest"
	"email-gateway/shared/waittest"
	"email-gateway/worker/internal/maintenance"
)

// keptResults are the results that workers could not record.
type keptResults struct {
	mu       sync.Mutex
	results  map[uuid.UUID]outbox.Transition
	err      error
	asked    int
	recorded []uuid.UUID
}

func (k *keptResults) Find(context.Context, []uuid.UUID) (map[uuid.UUID]outbox.Transition, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.asked++
	return k.results, k.err
}

func (k *keptResults) MarkRecorded(_ context.Context, token uuid.UUID) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.recorded = append(k.recorded, token)
	return nil
}

// answer ends or begins a failure of Find, and returns how often it was called.
func (k *keptResults) answer(err error) (asked int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.err = err
	return k.asked
}

func token(t *testing.T, d storetest.Database, id uuid.UUID) (token uuid.UUID) {
	t.Helper()
	if err := d.SQL.QueryRowContext(t.Context(), `SELECT claim_token FROM email_outbox WHERE id = $1`, id).Scan(&token); err != nil {
		t.Fatal(err)
	}
	return token
}

// A result that a worker could not record decides about the email, whether the attempt is found after its lease or after the
// feedback window. A result that is another email's, or that Postgres refuses, changes nothing.
func TestOutcomes_KnownResult(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	claimed := func() uuid.UUID {
		return claim(t, d, company, "- interval '6 s'", func(e *outbox.NewEmail) { e.Delivery = email.AtMostOnce })
	}
	sent := func(id uuid.UUID, kind email.EventType) outbox.Transition {
		return outbox.Transition{
			ID: id, Guard: outbox.GuardAttempt, Token: token(t, d, id), Status: email.Sent, SESMessageID: "ses-1", Duration: time.Second,
			Events: []email.Event{{Type: kind, At: time.Now()}},
		}
	}
	abandoned, waiting, foreign, refused := claimed(), claimed(), claimed(), claimed()
	set(t, d, waiting, `status = 'OUTCOME_UNKNOWN', lease_until = NULL, next_at = now()`)
	results := &keptResults{results: map[uuid.UUID]outbox.Transition{
		token(t, d, abandoned): sent(abandoned, email.EventSent), token(t, d, waiting): sent(waiting, email.EventSent),
		token(t, d, foreign): sent(d.Accept(t, company, nil), email.EventSent),
		token(t, d, refused): sent(refused, email.EventReceived), // no path of a timeline
	}}
	outcomes := maintenance.Outcomes{
		Advancer: d.Store.NewAdvancer(), MaxAttempts: email.MaxAttempts, Backoff: emailtest.Backoff(), Processes: d.Store, PendingResults: results, Wake: d.Store.WakeNamed,
	}
	log, registry := slog.New(slog.DiscardHandler), prometheus.NewRegistry()
	run(t, maintenance.NewRescuer(maintenance.RescuerParams{
		Log: log, Store: d.Store, Outcomes: outcomes, Queue: newQueue(t), Registry: registry, Actions: maintenance.NewActions(registry), After: time.Minute,
	}))
	run(t, maintenance.NewOutcomeResolver(maintenance.ResolverParams{Log: log, Store: d.Store, Outcomes: outcomes, Registry: registry}))
	for id, want := range map[uuid.UUID]email.Status{abandoned: email.Sent, waiting: email.Sent, foreign: email.Failed, refused: email.Failed} {
		waittest.Until(t, string(want), func() bool { return status(t, d, id) == want })
	}
	if shown, err := d.Store.FindEmail(t.Context(), company, abandoned); err != nil || shown.OutcomeUnknown || shown.PossibleDuplicate {
		t.Errorf("%+v, %v, want no flag", shown, err)
	}
	waittest.Until(t, "recorded results are marked", func() bool {
		results.mu.Lock()
		defer results.mu.Unlock()
		return len(results.recorded) == 2
	})
}

// While Redis does not answer, no attempt is ended; without an abandoned attempt, Redis is not asked.
func TestOutcomes_RedisDoesNotAnswer(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	results := &keptResults{err: errors.New("no answer")}
	registry := prometheus.NewRegistry()
	run(t, maintenance.NewRescuer(maintenance.RescuerParams{
		Log: slog.New(slog.DiscardHandler), Store: d.Store, Queue: newQueue(t), Registry: registry, Actions: maintenance.NewActions(registry), After: time.Second,
		Outcomes: maintenance.Outcomes{
			Advancer: d.Store.NewAdvancer(), MaxAttempts: email.MaxAttempts, Backoff: emailtest.Backoff(), Processes: d.Store, PendingResults: results, Wake: d.Store.WakeNamed,
		},
	}))
	lost := d.Accept(t, d.Company(t), nil)
	set(t, d, lost, `status = 'ENQUEUED', enqueued_at = now() - interval '1 h'`)
	waittest.Until(t, "a round", func() bool { return status(t, d, lost) == email.Pending })
	if n := results.answer(results.err); n != 0 {
		t.Errorf("Redis was asked %d times about no attempt", n)
	}
	id := claim(t, d, d.Company(t), "- interval '6 s'", nil)
	waittest.Until(t, "two rounds", func() bool { return results.answer(errors.New("no answer")) > 1 })
	if got := status(t, d, id); got != email.Processing {
		t.Errorf("status = %s", got)
	}
	results.answer(nil)
	waittest.Until(t, "as without a result", func() bool { return status(t, d, id) == email.RetryScheduled })
}
