package pipeline_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/recipient"
	"email-gateway/shared/store/storetest"
	"email-gateway/shared/telemetry"
	"email-gateway/worker/internal/pipeline"
	"email-gateway/worker/internal/provider"
	"email-gateway/worker/internal/queue"
)

// The row decides whether an email may be sent now, not the task.
func TestHandle_EmailsThatMustNotBeSent(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		prepare string // run on the row
		status  email.Status
		events  []email.EventType
	}{
		"cancelled": {"UPDATE email_outbox SET status = 'CANCELLED', processed_at = now()", email.Cancelled, nil},
		"claimed by another worker": {
			"UPDATE email_outbox SET status = 'PROCESSING', claim_token = gen_random_uuid(), lease_until = now() + interval '1 min'",
			email.Processing, nil,
		},
		"not due":           {"UPDATE email_outbox SET status = 'ENQUEUED', next_at = now() + interval '1 min'", email.Pending, nil},
		"retry not due":     {"UPDATE email_outbox SET status = 'RETRY_SCHEDULED', next_at = now() + interval '1 min'", email.RetryScheduled, nil},
		"lane paused":       {"WITH l AS (UPDATE dispatch_lanes SET paused_at = now()) UPDATE email_outbox SET status = 'ENQUEUED'", email.Pending, nil},
		"lane parked":       {"WITH l AS (UPDATE dispatch_lanes SET parked_until = now() + interval '1 min') UPDATE email_outbox SET status = 'ENQUEUED'", email.Pending, nil},
		"company suspended": {"WITH c AS (UPDATE companies SET suspended_at = now()) UPDATE email_outbox SET status = 'ENQUEUED'", email.Pending, nil},
		"expired":           {"UPDATE email_outbox SET status = 'ENQUEUED', expires_at = now()", email.Expired, []email.EventType{email.EventExpired}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, nil)
			id := b.Accept(t, b.company, nil)
			task := b.task(t, id)
			b.exec(t, c.prepare)
			if err := b.pipeline.Handle(t.Context(), task); err != nil {
				t.Errorf("handle = %v, want the task acknowledged", err)
			}
			if len(b.sender.sent) != 0 {
				t.Error("the provider was called")
			}
			if got := b.find(t, id).Status; got != c.status {
				t.Errorf("status = %s, want %s", got, c.status)
			}
			if got := b.events(t, id); !slices.Equal(got, c.events) {
				t.Errorf("events = %v, want %v", got, c.events)
			}
		})
	}
}

// A task that is acknowledged without effect is cleared from the row, so that the dispatcher
// enqueues the email when it is due.
func TestHandle_DropsTheTask(t *testing.T) {
	t.Parallel()
	for status, want := range map[email.Status]email.Status{
		email.Pending: email.Pending, email.Enqueued: email.Pending, email.RetryScheduled: email.RetryScheduled,
	} {
		t.Run(string(status), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, nil)
			id := b.Accept(t, b.company, nil)
			task := b.task(t, id)
			b.exec(t, "UPDATE dispatch_lanes SET paused_at = now()")
			b.exec(t, "UPDATE email_outbox SET status = '"+string(status)+"', enqueued_at = CASE WHEN '"+string(status)+"' <> 'PENDING' THEN now() END")
			if err := b.pipeline.Handle(t.Context(), task); err != nil {
				t.Errorf("handle = %v, want the task acknowledged", err)
			}
			if got := b.find(t, id).Status; got != want || b.hasTask(t, id) {
				t.Errorf("status = %s, has a task: %v; want %s without one", got, b.hasTask(t, id), want)
			}
		})
	}
}

// A task whose email cannot be sent now finds the row locked: it is retried.
func TestHandle_KeepsTaskOfLockedRow(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	id := b.Accept(t, b.company, nil)
	task := b.task(t, id)
	b.exec(t, "UPDATE dispatch_lanes SET paused_at = now()")
	b.exec(t, "UPDATE email_outbox SET status = 'ENQUEUED', enqueued_at = now()")
	tx, err := b.SQL.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(t.Context(), "SELECT FROM email_outbox WHERE id = $1 FOR UPDATE", id); err != nil {
		t.Fatal(err)
	}
	var later *queue.RetryLater
	if err := b.pipeline.Handle(t.Context(), task); !errors.As(err, &later) || later.Delay > 2*time.Second {
		t.Errorf("handle = %v, want the task to be retried", err)
	}
}

func TestHandle_ValidationFailures(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*outbox.NewEmail)
		code   string
	}{
		"payload": {func(e *outbox.NewEmail) { e.Job.Subject = "a\nb" }, email.CodeInvalidPayload},
		"no identifier": {
			func(e *outbox.NewEmail) { e.Job.Recipient.ExternalID = "" }, email.CodeInvalidPayload,
		},
		"unknown recipient": {
			func(e *outbox.NewEmail) { e.Job.Recipient.RecipientID = uuid.NewString() }, email.CodeRecipientNotFound,
		},
		"script, checked by an older checker": {
			func(e *outbox.NewEmail) { e.HTML, e.CheckerVersion = "<p onclick=x()>", 0 }, email.CodeInvalidTemplate,
		},
		"script, with the hash of another body": {
			func(e *outbox.NewEmail) { e.HTML = "<script>alert(1)</script>" }, email.CodeInvalidTemplate,
		},
		"empty body": {func(e *outbox.NewEmail) { e.HTML, e.Text = "", "" }, email.CodeInvalidTemplate},
		"body too large": {
			func(e *outbox.NewEmail) { e.HTML = strings.Repeat("a", email.MaxHTML+1) }, email.CodeInvalidTemplate,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, nil)
			id := b.Accept(t, b.company, c.change)
			var dead *queue.Dead
			if err := b.handle(t, id); !errors.As(err, &dead) {
				t.Fatalf("handle = %v, want a dead letter", err)
			}
			e := b.find(t, id)
			if e.Status != email.Failed || e.Attempts != 1 || e.ErrorCode == nil || *e.ErrorCode != c.code || e.FailedAt == nil {
				t.Errorf("email = %+v, want FAILED with %s", e, c.code)
			}
			want := []email.EventType{email.EventReceived, email.EventValidationFailed, email.EventFailed}
			if got := b.events(t, id); !slices.Equal(got, want) {
				t.Errorf("events = %v, want %v", got, want)
			}
			if b.openDeadLetters(t, id) != 1 || len(b.sender.sent) != 0 {
				t.Error("want one dead letter and no call")
			}
		})
	}
}

func TestHandle_TasksWithoutEmailAreDeadLettered(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	id := b.Accept(t, b.company, nil)
	foreign := b.task(t, id)
	foreign.Payload = []byte(strings.Replace(string(foreign.Payload), b.company.String(), uuid.NewString(), 1))
	for name, c := range map[string]struct {
		task queue.Task
		code string
	}{
		"undecodable":       {queue.Task{ID: "x", Payload: []byte("\x00nonsense")}, email.CodeInvalidPayload},
		"no such email":     {queue.Task{ID: uuid.NewString(), Payload: []byte("{}")}, email.CodeOutboxNotFound},
		"another company's": {foreign, email.CodeOutboxNotFound},
	} {
		c.task.Queue = email.QueueNormal
		if err := b.pipeline.Handle(t.Context(), c.task); err != nil {
			t.Errorf("%s: handle = %v, want the task acknowledged", name, err)
		}
		var n int
		if err := b.SQL.QueryRowContext(t.Context(), "DELETE FROM dead_letters WHERE reason = $1 RETURNING 1", c.code).Scan(&n); err != nil {
			t.Errorf("%s: no dead letter with %s: %v", name, c.code, err)
		}
	}
	if got := b.find(t, id).Status; got != email.Pending {
		t.Errorf("status = %s: a foreign task moved the email", got)
	}

	broken := queue.Task{ID: id.String(), Queue: email.QueueNormal, Payload: []byte(`{"outboxId":7}`)}
	var dead *queue.Dead
	if err := b.pipeline.Handle(t.Context(), broken); !errors.As(err, &dead) {
		t.Errorf("broken payload under the email's own id = %v, want a dead letter", err)
	}
	if e := b.find(t, id); e.Status != email.Failed || *e.ErrorCode != email.CodeInvalidPayload {
		t.Errorf("email = %+v", e)
	}
}

// interrupted simulates database outages: some advances fail before or after they were applied.
type interrupted struct {
	pipeline.Advancer
	lost func(outbox.Transition) (before, after bool)
}

func (i *interrupted) Advance(ctx context.Context, t outbox.Transition) (outbox.Advanced, error) {
	before, after := i.lost(t)
	if before {
		return outbox.Advanced{}, store.ErrUnavailable
	}
	done, err := i.Advancer.Advance(ctx, t)
	if after {
		return outbox.Advanced{}, store.ErrUnknownOutcome
	}
	return done, err
}

func TestHandle_RecordsThroughOutages(t *testing.T) {
	t.Parallel()
	calls := map[outbox.Guard]int{}
	var log bytes.Buffer
	b := newBench(t, func(p *pipeline.Params) {
		p.Log = telemetry.NewLogger(&log, "email-gateway-worker", "test", "debug")
		p.Advancer = &interrupted{p.Advancer, func(tr outbox.Transition) (before, after bool) {
			calls[tr.Guard]++
			switch tr.Guard {
			case outbox.GuardClaim: // the claim's answer is lost, then the database is down for a moment
				return calls[tr.Guard] == 2, calls[tr.Guard] == 1
			case outbox.GuardAttempt: // down twice, then the answer is lost
				return calls[tr.Guard] <= 2, calls[tr.Guard] == 3
			}
			return false, false
		}}
	})
	id := b.Accept(t, b.company, nil)
	if err := b.handle(t, id); err != nil {
		t.Fatal(err)
	}
	if e := b.find(t, id); e.Status != email.Sent || e.Attempts != 1 {
		t.Errorf("email = %+v", e)
	}
	if got, want := b.events(t, id), timeline(firstTry, email.EventSent); !slices.Equal(got, want) {
		t.Errorf("events = %v, want %v", got, want)
	}
	if len(b.sender.sent) != 1 {
		t.Errorf("%d calls, want 1", len(b.sender.sent))
	}
	// If the database never answers again, this line alone says that SES accepted the email.
	if !strings.Contains(log.String(), `"ended":"SENT"`) {
		t.Errorf("no line says that the attempt ended with SENT:\n%s", log.String())
	}
}

// A connection that breaks after the claim's commit makes database/sql repeat the claim, which
// cannot succeed twice. The email still belongs to this attempt.
func TestHandle_LostClaimAnswer(t *testing.T) {
	t.Parallel()
	var wire *storetest.Proxy
	b := newBenchOn(t, func(d storetest.Database) *store.Store {
		wire = storetest.NewProxy(t, d)
		s, err := store.Open(t.Context(), wire.URL, store.Options{MaxConns: 1})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		return s
	}, nil)
	// The first email prepares the statement, so that the next answer is the claim's.
	if err := b.handle(t, b.Accept(t, b.company, nil)); err != nil {
		t.Fatal(err)
	}
	id := b.Accept(t, b.company, nil)
	wire.Cut(1)
	if err := b.handle(t, id); err != nil {
		t.Fatal(err)
	}
	if e := b.find(t, id); e.Status != email.Sent || e.Attempts != 1 || len(b.sender.sent) != 2 {
		t.Errorf("email = %+v after %d calls", e, len(b.sender.sent)-1)
	}
}

// An acceptance is recorded whatever happened to the email meanwhile.
func TestHandle_LateAcceptanceIsRecorded(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	id := b.Accept(t, b.company, nil)
	b.sender.during = func() {
		b.exec(t, "UPDATE email_outbox SET status = 'EXPIRED', processed_at = now(), lease_until = NULL, claim_token = gen_random_uuid() WHERE id = $1", id)
	}
	if err := b.handle(t, id); err != nil {
		t.Fatal(err)
	}
	if e := b.find(t, id); e.Status != email.Sent || e.SentAt == nil || e.CreatedAt.After(time.Now().Add(time.Minute)) {
		t.Errorf("email = %+v", e)
	}
}

// never is a pacer that never grants a token. It signals that a task waits.
type never struct{ waiting func() }

func (never) Throttled(time.Time) {}
func (never) Accepted(time.Time)  {}

func (never) Return(int) {}
func (never) Borrow(int) {}

func (n never) Wait(ctx context.Context, _ int) error {
	n.waiting()
	<-ctx.Done()
	return context.Cause(ctx)
}

// A stop, or a rate that is far too low, leaves the email untouched.
func TestHandle_NoClaimWhileRateLimited(t *testing.T) {
	t.Parallel()
	stopping, stop := context.WithCancel(t.Context())
	b := newBench(t, func(p *pipeline.Params) { p.Pacer = never{waiting: stop} })
	id := b.Accept(t, b.company, nil)
	var later *queue.RetryLater
	if err := b.pipeline.Handle(stopping, b.task(t, id)); !errors.As(err, &later) {
		t.Errorf("handle = %v, want the task to go back to the queue", err)
	}
	if e := b.find(t, id); e.Status != email.Pending || e.Attempts != 0 || len(b.sender.sent) != 0 {
		t.Errorf("email = %+v after %d calls, want it untouched", e, len(b.sender.sent))
	}
}

// A known recipient's CPF moves to the recipients table too.
func TestHandle_MovesTaxIDOfKnownRecipient(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	if err := b.handle(t, b.Accept(t, b.company, nil)); err != nil {
		t.Fatal(err)
	}
	known := recipient.ID(b.company, "CUST-1", "", "")
	id := b.Accept(t, b.company, func(e *outbox.NewEmail) {
		e.Job.Recipient.ExternalID, e.Job.Recipient.RecipientID = "", known.String()
		e.Job.Recipient.CPFCNPJHash, e.CPFCNPJ = strings.Repeat("0a", 32), []byte("ciphertext")
	})
	if err := b.handle(t, id); err != nil {
		t.Fatal(err)
	}
	var kept string
	var left *[]byte
	if err := b.SQL.QueryRowContext(t.Context(), `SELECT r.cpf_cnpj_enc, o.cpf_cnpj_enc FROM recipients r, email_outbox o
		WHERE r.id = $1 AND o.id = $2`, known, id).Scan(&kept, &left); err != nil {
		t.Fatal(err)
	}
	if kept != "ciphertext" || left != nil {
		t.Errorf("recipient has %q, outbox %v; want it moved", kept, left)
	}
}

// With feedback, an email of unknown outcome waits for it in OUTCOME_UNKNOWN.
func TestUnknown_WaitsForFeedback(t *testing.T) {
	t.Parallel()
	for _, delivery := range []email.Delivery{email.AtLeastOnce, email.AtMostOnce} {
		b := newBench(t, func(p *pipeline.Params) { p.FeedbackWindow = time.Hour })
		id := b.Accept(t, b.company, func(e *outbox.NewEmail) { e.Delivery = delivery })
		b.sender.fail(1, provider.Failure{Outcome: provider.Unknown, Code: "SES_TIMEOUT", Category: provider.TimeoutError, Reason: "no answer"})
		if err := b.handle(t, id); err != nil {
			t.Fatal(err)
		}
		found := b.find(t, id)
		if found.Status != email.OutcomeUnknown || !found.OutcomeUnknown || found.PossibleDuplicate || *found.ErrorCode != "SES_TIMEOUT" {
			t.Errorf("%s: %+v", delivery, found)
		}
		if got := b.events(t, id); !slices.Equal(got, append(slices.Clone(firstTry), email.EventOutcomeUnknown)) {
			t.Errorf("%s: %v", delivery, got)
		}
		var due bool
		if err := b.SQL.QueryRowContext(t.Context(), `SELECT next_at BETWEEN now() + interval '59 min' AND now() + interval '61 min' FROM email_outbox`).Scan(&due); err != nil || !due {
			t.Errorf("%s: not due in an hour, %v", delivery, err)
		}
	}
}

// A stop that interrupts a read returns the task to the queue and is not reported as the task's
// error.
func TestHandle_Stopped(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	task := b.task(t, b.Accept(t, b.company, nil))
	ctx, stop := context.WithCancel(t.Context())
	stop()
	for range 100 { // the read of some is in flight when it is interrupted, that of others has not begun
		err := b.pipeline.Handle(ctx, task)
		if later := (&queue.RetryLater{}); !errors.As(err, &later) {
			t.Fatalf("%v, want a RetryLater", err)
		}
	}
}
