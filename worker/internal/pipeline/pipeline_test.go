package pipeline_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/shared/email"
	"email-gateway/shared/email/emailtest"
	"email-gateway/shared/store"
	"email-gateway/shared/store/emails"
	"email-gateway/shared/store/file"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/storetest"
	"email-gateway/shared/waittest"
	"email-gateway/worker/internal/attachment"
	"email-gateway/worker/internal/breaker"
	"email-gateway/worker/internal/pipeline"
	"email-gateway/worker/internal/provider"
	"email-gateway/worker/internal/queue"
)

// bench is a pipeline on its own database, with a provider whose answers the test sets.
type bench struct {
	storetest.Database
	company  uuid.UUID
	sender   *scriptedSender
	pipeline *pipeline.Pipeline
}

func newBench(t *testing.T, change func(*pipeline.Params)) *bench {
	t.Helper()
	return newBenchOn(t, func(d storetest.Database) *store.Store { return d.Store }, change)
}

// newBenchOn is newBench with a separate store for the emails' transitions.
func newBenchOn(t *testing.T, advance func(storetest.Database) *store.Store, change func(*pipeline.Params)) *bench {
	t.Helper()
	d := storetest.New(t)
	b := &bench{Database: d, company: d.Company(t), sender: &scriptedSender{}}
	loader, advancer := d.Store.NewLoader(), advance(d).NewAdvancer()
	t.Cleanup(loader.Close)
	t.Cleanup(advancer.Close)
	p := pipeline.Params{
		Log: slog.New(slog.DiscardHandler), Loader: loader, Advancer: advancer, Outbox: d.Store,
		Pacer: unpaced{}, Sender: b.sender, Breaker: newBreaker(d), Templates: d.Store, Metrics: pipeline.NewMetrics(prometheus.NewRegistry()),
		RetryRoom:   retryRoom(true),
		Attachments: attachment.New(attachment.Params{Store: file.New(d.Store.DB()), Concurrency: func() int { return 10 }}),
		MaxAttempts: email.MaxAttempts, Backoff: emailtest.Backoff(),
	}
	if change != nil {
		change(&p)
	}
	b.pipeline = pipeline.New(p)
	return b
}

// retryRoom reports whether queues have room for retries.
type retryRoom bool

func (r retryRoom) Free(context.Context, string) bool { return bool(r) }

// task returns the task that the dispatcher would enqueue for an email.
func (b *bench) task(t *testing.T, id uuid.UUID) queue.Task {
	t.Helper()
	var payload []byte
	if err := b.SQL.QueryRowContext(t.Context(), "SELECT payload FROM email_outbox WHERE id = $1", id).Scan(&payload); err != nil {
		t.Fatal(err)
	}
	job, err := email.DecodeSendJob(payload)
	if err != nil {
		t.Fatal(err)
	}
	job.Attempt, job.EnqueuedAt = 1, time.Now()
	encoded, err := json.Marshal(job)
	if err != nil {
		t.Fatal(err)
	}
	return queue.Task{ID: id.String(), Queue: email.QueueNormal, Payload: encoded}
}

// handle delivers the email's task once, at a time when it is due.
func (b *bench) handle(t *testing.T, id uuid.UUID) error {
	t.Helper()
	b.exec(t, "UPDATE email_outbox SET next_at = now() WHERE id = $1 AND status IN ('PENDING', 'RETRY_SCHEDULED')", id)
	return b.pipeline.Handle(t.Context(), b.task(t, id))
}

func (b *bench) exec(t *testing.T, statement string, args ...any) {
	t.Helper()
	if _, err := b.SQL.ExecContext(t.Context(), statement, args...); err != nil {
		t.Fatal(err)
	}
}

func (b *bench) find(t *testing.T, id uuid.UUID) emails.Email {
	t.Helper()
	e, err := b.Store.FindEmail(t.Context(), b.company, id)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func (b *bench) events(t *testing.T, id uuid.UUID) []email.EventType {
	t.Helper()
	timeline, err := b.Store.Timeline(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	types := make([]email.EventType, len(timeline))
	for i, e := range timeline {
		types[i] = e.Type
	}
	return types
}

func (b *bench) openDeadLetters(t *testing.T, id uuid.UUID) (n int) {
	t.Helper()
	err := b.SQL.QueryRowContext(t.Context(),
		"SELECT count(*) FROM dead_letters WHERE outbox_id = $1 AND resolved_at IS NULL", id).Scan(&n)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// scriptedSender answers with its failures in turn, then accepts everything.
type scriptedSender struct {
	mu       sync.Mutex
	failures []*provider.Failure
	sent     []provider.Message
	during   func() // runs during the call
}

func (s *scriptedSender) Send(_ context.Context, m provider.Message) (provider.Receipt, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = append(s.sent, m)
	if s.during != nil {
		s.during()
	}
	if len(s.failures) > 0 {
		f := s.failures[0]
		s.failures = s.failures[1:]
		return provider.Receipt{}, f
	}
	return provider.Receipt{MessageID: "ses-1"}, nil
}

func (s *scriptedSender) fail(times int, f provider.Failure) {
	s.failures = slices.Repeat([]*provider.Failure{&f}, times)
}

type unpaced struct{}

func (unpaced) Wait(context.Context, int) error { return nil }
func (unpaced) Throttled(time.Time)             {}
func (unpaced) Accepted(time.Time)              {}
func (unpaced) Return(int)                      {}
func (unpaced) Borrow(int)                      {}

var firstTry = []email.EventType{email.EventReceived, email.EventValidated, email.EventSentAttempt}

func timeline(parts ...any) []email.EventType {
	var all []email.EventType
	for _, part := range parts {
		switch part := part.(type) {
		case []email.EventType:
			all = append(all, part...)
		case email.EventType:
			all = append(all, part)
		}
	}
	return all
}

func TestHandle_SendsOnceWithEvents(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	id := b.Accept(t, b.company, func(e *outbox.NewEmail) {
		e.Job.CC, e.Job.Headers, e.Job.Tags = []string{"cc@example.com"}, map[string]string{"X-Order": "7"}, []string{"invoice"}
		e.Job.Recipient.CPFCNPJHash, e.CPFCNPJ, e.Text = strings.Repeat("0a", 32), []byte("ciphertext"), "Olá"
	})
	if err := b.handle(t, id); err != nil {
		t.Fatal(err)
	}

	e := b.find(t, id)
	if e.Status != email.Sent || e.Attempts != 1 || e.SESMessageID == nil || *e.SESMessageID != "ses-1" || e.SentAt == nil || e.DurationMS == nil {
		t.Errorf("email = %+v", e)
	}
	if got, want := b.events(t, id), timeline(firstTry, email.EventSent); !slices.Equal(got, want) {
		t.Errorf("events = %v, want %v", got, want)
	}
	var installation string
	if err := b.SQL.QueryRowContext(t.Context(), `SELECT id FROM installation`).Scan(&installation); err != nil {
		t.Fatal(err)
	}
	m := b.sender.sent[0]
	if m.From != "Acme <billing@acme.example>" || m.Headers["X-Order"] != "7" || m.Text != "Olá" || m.CC[0] != "cc@example.com" ||
		m.OutboxID != id.String() || m.CompanyID != b.company.String() || m.InstallationID != installation {
		t.Errorf("message = %+v", m)
	}
	var ciphertext []byte
	var left *[]byte
	if err := b.SQL.QueryRowContext(t.Context(), `SELECT r.cpf_cnpj_enc, o.cpf_cnpj_enc FROM recipients r, email_outbox o
		WHERE r.id = $1 AND o.id = $2`, e.RecipientID, id).Scan(&ciphertext, &left); err != nil {
		t.Fatal(err)
	}
	if string(ciphertext) != "ciphertext" || left != nil {
		t.Errorf("cpf_cnpj_enc: recipient %q, outbox %v; want it moved", ciphertext, left)
	}

	if err := b.handle(t, id); err != nil {
		t.Errorf("a second task of a sent email = %v, want it acknowledged", err)
	}
	if len(b.sender.sent) != 1 {
		t.Errorf("%d calls, want 1", len(b.sender.sent))
	}
}

func TestHandle_ProviderOutcomes(t *testing.T) {
	t.Parallel()
	unknown := timeline(firstTry, email.EventOutcomeUnknown)
	for name, c := range map[string]struct {
		outcome   provider.Outcome
		delivery  email.Delivery
		status    email.Status
		code      string
		attempts  int
		throttles int
		events    []email.EventType
		dead      bool
		unknown   bool
		duplicate bool
		retried   bool
	}{
		"failed": {
			outcome: provider.Failed, status: email.Failed, code: "X", attempts: 1,
			events: timeline(firstTry, email.EventFailed), dead: true,
		},
		"throttled": {
			outcome: provider.Throttled, status: email.RetryScheduled, code: "X", attempts: 1, throttles: 1,
			events: timeline(firstTry, email.EventRetryScheduled), retried: true,
		},
		"retry": {
			outcome: provider.Retry, status: email.RetryScheduled, code: "X", attempts: 1,
			events: timeline(firstTry, email.EventRetryScheduled), retried: true,
		},
		"unknown, at least once": {
			outcome: provider.Unknown, status: email.RetryScheduled, code: "X", attempts: 1,
			events: timeline(unknown, email.EventRetryScheduled), retried: true, unknown: true, duplicate: true,
		},
		"unknown, at most once": {
			outcome: provider.Unknown, delivery: email.AtMostOnce, status: email.Failed, code: "OUTCOME_UNKNOWN", attempts: 1,
			events: timeline(unknown, email.EventFailed), dead: true, unknown: true,
		},
		"unreadable": {
			outcome: provider.Unreadable, status: email.Failed, code: "X", attempts: 1,
			events: timeline(firstTry, email.EventFailed), dead: true, unknown: true,
		},
		"park": {
			outcome: provider.Park, status: email.Pending, code: "X",
			events: timeline(firstTry, email.EventReleased),
		},
		"unspent": {
			outcome: provider.Unspent, status: email.Pending, code: "X",
			events: timeline(firstTry, email.EventReleased),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, nil)
			id := b.Accept(t, b.company, func(e *outbox.NewEmail) {
				if c.delivery != "" {
					e.Delivery = c.delivery
				}
			})
			b.sender.fail(1, provider.Failure{Outcome: c.outcome, Code: "X", Category: provider.TransientError, Reason: "no"})
			err := b.handle(t, id)

			var later *queue.RetryLater
			var dead *queue.Dead
			if got := errors.As(err, &later); got != c.retried {
				t.Errorf("asked for a retry: %v, want %v (%v)", got, c.retried, err)
			}
			if got := b.hasTask(t, id); c.status != email.Failed && got != c.retried {
				t.Errorf("the row counts on a queued task: %v, want %v", got, c.retried)
			}
			if got := errors.As(err, &dead); got != c.dead {
				t.Errorf("asked for a dead letter: %v, want %v (%v)", got, c.dead, err)
			}
			e := b.find(t, id)
			if e.Status != c.status || e.Attempts != c.attempts || e.Throttles != c.throttles ||
				e.OutcomeUnknown != c.unknown || e.PossibleDuplicate != c.duplicate {
				t.Errorf("email = %+v", e)
			}
			if e.ErrorCode == nil || *e.ErrorCode != c.code {
				t.Errorf("code = %v, want %s", e.ErrorCode, c.code)
			}
			if got := b.events(t, id); !slices.Equal(got, c.events) {
				t.Errorf("events = %v, want %v", got, c.events)
			}
			if got := b.openDeadLetters(t, id); (got == 1) != c.dead {
				t.Errorf("%d open dead letters, want one: %v", got, c.dead)
			}
		})
	}
}

// hasTask reports whether the email's row counts on a task on the queue.
func (b *bench) hasTask(t *testing.T, id uuid.UUID) (has bool) {
	t.Helper()
	if err := b.SQL.QueryRowContext(t.Context(), "SELECT enqueued_at IS NOT NULL FROM email_outbox WHERE id = $1", id).Scan(&has); err != nil {
		t.Fatal(err)
	}
	return has
}

func (b *bench) nextAt(t *testing.T, id uuid.UUID) (at time.Time) {
	t.Helper()
	if err := b.SQL.QueryRowContext(t.Context(), "SELECT next_at FROM email_outbox WHERE id = $1", id).Scan(&at); err != nil {
		t.Fatal(err)
	}
	return at
}

// slack is how long a busy machine may take for a try.
const slack = 10 * time.Second

func TestHandle_GivesUpAfterFiveTries(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	id := b.Accept(t, b.company, nil)
	b.sender.fail(9, provider.Failure{Outcome: provider.Retry, Code: "NETWORK_ERROR", Category: provider.TransientError})

	var waits []time.Duration
	for range email.MaxAttempts - 1 {
		start := time.Now()
		err := b.handle(t, id)
		var later *queue.RetryLater
		wait := b.nextAt(t, id).Sub(start)
		soon, late := wait <= 30*time.Second, wait > 30*time.Second+slack // the wait is measured, slack included
		if onQueue := errors.As(err, &later); onQueue && late || !onQueue && (soon || err != nil) || onQueue != b.hasTask(t, id) {
			t.Fatalf("err = %v, want a retry on the queue if it is soon: after %s", err, wait)
		}
		waits = append(waits, wait)
	}
	var dead *queue.Dead
	if err := b.handle(t, id); !errors.As(err, &dead) {
		t.Fatalf("fifth try: %v, want a dead letter", err)
	}
	if e := b.find(t, id); e.Status != email.Failed || e.Attempts != 5 {
		t.Errorf("email = %+v", e)
	}
	for i, wait := range waits {
		base := emailtest.Backoff()[i]
		if wait < base*3/4 || wait > base*5/4+slack {
			t.Errorf("wait after try %d = %s, want %s ±25 %%", i+1, wait, base)
		}
	}
}

// Without room for retries on the queue, they wait in the outbox without a task.
func TestHandle_RetriesWaitInTheOutbox(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(p *pipeline.Params) { p.RetryRoom = retryRoom(false) })
	id := b.Accept(t, b.company, nil)
	b.exec(t, `UPDATE email_outbox SET status = 'ENQUEUED', enqueued_at = now()`)
	b.sender.fail(1, provider.Failure{Outcome: provider.Throttled, Code: "SES_THROTTLING", Category: provider.QuotaError})
	if err := b.handle(t, id); err != nil {
		t.Errorf("handle = %v, want the task acknowledged", err)
	}
	if e := b.find(t, id); e.Status != email.RetryScheduled || b.hasTask(t, id) {
		t.Errorf("email = %+v, has a task: %v", e, b.hasTask(t, id))
	}
}

func TestHandle_QuotaErrorsNeverFailAnEmail(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	id := b.Accept(t, b.company, nil)
	b.sender.fail(7, provider.Failure{Outcome: provider.Throttled, Code: "SES_THROTTLING", Category: provider.QuotaError})
	for range 7 {
		var later *queue.RetryLater
		if err := b.handle(t, id); err != nil && !errors.As(err, &later) || b.find(t, id).Status != email.RetryScheduled {
			t.Fatalf("err = %v, want a retry", err)
		}
	}
	if err := b.handle(t, id); err != nil {
		t.Fatal(err)
	}
	if e := b.find(t, id); e.Status != email.Sent || e.Attempts != 8 || e.Throttles != 7 {
		t.Errorf("email = %+v", e)
	}
}

func TestHandle_ConcurrentTasksSendOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	id := b.Accept(t, b.company, nil)
	task := b.task(t, id)
	var group sync.WaitGroup
	gate := make(chan struct{})
	for range 32 {
		group.Go(func() {
			<-gate
			err := b.pipeline.Handle(t.Context(), task)
			var later *queue.RetryLater
			for errors.As(err, &later) { // while the winner has the row locked
				err = b.pipeline.Handle(t.Context(), task)
			}
			if err != nil {
				t.Errorf("handle: %v", err)
			}
		})
	}
	close(gate)
	group.Wait()
	if len(b.sender.sent) != 1 {
		t.Errorf("%d calls, want 1", len(b.sender.sent))
	}
	// A result that waited for the row lock of another task is written after that task's call.
	waittest.Until(t, "the result is written", func() bool { return b.find(t, id).Status != email.Processing })
	if e := b.find(t, id); e.Status != email.Sent || e.Attempts != 1 {
		t.Errorf("email = %+v", e)
	}
}

func newBreaker(d storetest.Database) *breaker.Breaker {
	return breaker.New(breaker.Params{
		Log: slog.New(slog.DiscardHandler), Store: d.Store, Instance: "worker-1", Registry: prometheus.NewRegistry(),
	})
}
