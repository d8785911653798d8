package pipeline_test

import (
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store/outbox"
	"email-gateway/worker/internal/queue"
)

// The task is delivered while a transaction of the api reschedules or cancels the email. The task
// is retried and then follows the row.
func TestHandle_EmailBeingChangedByTheAPI(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change   func(t *testing.T, b *bench, tx *sql.Tx, about outbox.Aggregate) error
		prepare  string
		rollback bool
		status   email.Status // when the task is retried
	}{
		"moved":             {change: move, status: email.Pending},
		"cancelled":         {change: cancel, status: email.Cancelled},
		"not moved":         {change: move, rollback: true, status: email.Sent},
		"not cancelled":     {change: cancel, rollback: true, status: email.Sent},
		"overdue":           {change: move, prepare: `UPDATE email_outbox SET expires_at = now()`, rollback: true, status: email.Expired},
		"moved, if overdue": {change: move, prepare: `UPDATE email_outbox SET expires_at = now()`, status: email.Pending},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, nil)
			about := outbox.Aggregate{Type: "interview", ID: "42", EventType: "REMINDER"}
			id := b.Accept(t, b.company, func(e *outbox.NewEmail) { e.Aggregate = &about })
			b.exec(t, `UPDATE email_outbox SET status = 'ENQUEUED', enqueued_at = now()`)
			if c.prepare != "" {
				b.exec(t, c.prepare)
			}
			tx, err := b.SQL.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback()
			if err := c.change(t, b, tx, about); err != nil {
				t.Fatal(err)
			}
			var later *queue.RetryLater
			if err := b.pipeline.Handle(t.Context(), b.task(t, id)); !errors.As(err, &later) || later.Delay > 2*time.Second {
				t.Fatalf("handle = %v, want the task to be retried soon", err)
			}
			end := tx.Commit
			if c.rollback {
				end = tx.Rollback
			}
			if err := end(); err != nil {
				t.Fatal(err)
			}
			task := b.task(t, id)
			task.Retried = 1
			if err := b.pipeline.Handle(t.Context(), task); err != nil {
				t.Errorf("handle = %v, want the task acknowledged", err)
			}
			sent := 0
			if c.status == email.Sent {
				sent = 1
			}
			if got := b.find(t, id).Status; got != c.status || len(b.sender.sent) != sent {
				t.Errorf("status = %s after %d calls, want %s", got, len(b.sender.sent), c.status)
			}
		})
	}
}

func move(t *testing.T, b *bench, tx *sql.Tx, about outbox.Aggregate) error {
	_, err := outbox.RescheduleIn(t.Context(), tx, b.company, about, time.Now().Add(time.Hour), time.Hour)
	return err
}

func cancel(t *testing.T, b *bench, tx *sql.Tx, about outbox.Aggregate) error {
	_, err := outbox.CancelIn(t.Context(), tx, b.company, about)
	return err
}

// An email inserted by a program is sent, and its html is checked here because the api did not
// check it.
func TestHandle_ProgramEmail(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	enqueue := func(event, html string) uuid.UUID {
		done, err := outbox.EnqueueIn(t.Context(), b.SQL, outbox.ProgramEmail{
			CompanyID: b.company, Aggregate: outbox.Aggregate{Type: "interview", ID: "42", EventType: event}, TTL: time.Hour,
			Body: []byte(`{"to": "ana@example.com", "subject": "Até amanhã", "html": "` + html + `", "recipient": {"externalId": "C", "email": "ana@example.com"}}`),
		})
		if err != nil {
			t.Fatal(err)
		}
		return done.ID
	}
	good, bad := enqueue("GOOD", "<p>Olá!</p>"), enqueue("BAD", "<p>Olá!</p><script>alert(1)</script>")
	if err := b.handle(t, good); err != nil {
		t.Fatal(err)
	}
	_ = b.handle(t, bad) // the returned error is another test's
	if e := b.find(t, good); e.Status != email.Sent || b.sender.sent[0].HTML != "<p>Olá!</p>" || b.sender.sent[0].From != "Acme <billing@acme.example>" {
		t.Errorf("%+v, sent %+v", e, b.sender.sent[0])
	}
	if e := b.find(t, bad); e.Status != email.Failed || e.ErrorCode == nil || *e.ErrorCode != email.CodeInvalidTemplate {
		t.Errorf("%+v", e)
	}
}
