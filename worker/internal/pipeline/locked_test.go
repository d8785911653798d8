package pipeline_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"runtime"
	"testing"
	"time"
	"unsafe"
	"weak"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/telemetry"
	"email-gateway/worker/internal/attachment"
	"email-gateway/worker/internal/pipeline"
	"email-gateway/worker/internal/provider"
	"email-gateway/worker/internal/queue"
)

// Another session has locked the email's row. Its task is retried within two seconds and the row is
// unchanged, whatever the task was going to do.
func TestHandle_LockedEmailIsRetried(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		prepare string
		end     email.Status
	}{
		"claimed":    {`UPDATE email_outbox SET status = 'ENQUEUED', enqueued_at = now()`, email.Sent},
		"expired":    {`UPDATE email_outbox SET expires_at = now()`, email.Expired},
		"suppressed": {`INSERT INTO suppressions (company_id, address, reason) SELECT company_id, payload ->> 'to', 'MANUAL' FROM email_outbox`, email.Suppressed},
		"refused":    {`UPDATE email_outbox SET html = '<script>', html_sha256 = ''`, email.Failed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, nil)
			id := b.Accept(t, b.company, nil)
			b.exec(t, c.prepare)
			before := b.row(t, id)
			locked := b.lock(t, id)
			var later *queue.RetryLater
			if err := b.pipeline.Handle(t.Context(), b.task(t, id)); !errors.As(err, &later) || later.Delay > 2*time.Second {
				t.Fatalf("handle = %v, want the task to be retried soon", err)
			}
			if now := b.row(t, id); now != before {
				t.Errorf("the row changed from %s to %s", before, now)
			}
			if err := locked.Rollback(); err != nil {
				t.Fatal(err)
			}
			_ = b.pipeline.Handle(t.Context(), b.task(t, id)) // the returned error is another test's
			if got := b.find(t, id).Status; got != c.end {
				t.Errorf("status = %s, want %s", got, c.end)
			}
		})
	}
}

// unblocked is the limit for a step that must not wait for a lock: such a wait ends with
// statement_timeout, after 30 s.
const unblocked = 25 * time.Second

// Another session locks an email during the provider call. Its task ends without waiting and its
// result is written when the lock is gone; other emails are sent meanwhile.
func TestHandle_LockedEmailResultRecordedLater(t *testing.T) {
	t.Parallel()
	for name, statement := range map[string]string{
		"row":  `SELECT FROM email_outbox WHERE id = $1 FOR UPDATE`,
		"log":  `SELECT FROM email_logs WHERE outbox_id = $1 FOR UPDATE`,
		"both": `SELECT FROM email_outbox o JOIN email_logs l ON l.outbox_id = o.id WHERE o.id = $1 FOR UPDATE`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			calling := &callingSender{called: make(chan uuid.UUID), answer: make(chan struct{})}
			var log bytes.Buffer
			b := newBench(t, func(p *pipeline.Params) {
				calling.other, p.Sender, p.Log = p.Sender, calling, telemetry.NewLogger(&log, "email-gateway-worker", "test", "info")
			})
			id, others := b.Accept(t, b.company, nil), make([]uuid.UUID, 5)
			for i := range others {
				others[i] = b.Accept(t, b.company, nil)
			}
			calling.first = id
			ended := make(chan error, 1)
			task := b.task(t, id)
			go func() { ended <- b.pipeline.Handle(context.WithoutCancel(t.Context()), task) }()
			<-calling.called
			tx, err := b.SQL.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback()
			if _, err := tx.ExecContext(t.Context(), statement, id); err != nil {
				t.Fatal(err)
			}
			close(calling.answer)
			for _, other := range others {
				start := time.Now()
				if err := b.handle(t, other); err != nil || b.find(t, other).Status != email.Sent || time.Since(start) > unblocked {
					t.Errorf("another email: %v, %s after %s", err, b.find(t, other).Status, time.Since(start))
				}
			}
			select {
			case err := <-ended:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(unblocked):
				t.Error("the locked email keeps its task")
			}
			if err := tx.Rollback(); err != nil {
				t.Fatal(err)
			}
			if err := b.pipeline.Stop(t.Context()); err != nil {
				t.Error(err)
			}
			if got := b.find(t, id).Status; got != email.Sent {
				t.Errorf("status = %s, want the result to be recorded", got)
			}
			lines := linesOf(t, &log)
			if last := lines[len(lines)-1]; last["outboxId"] != id.String() || last["sesMessageId"] != "ses-1" {
				t.Errorf("logged as %v", last)
			}
		})
	}
}

// oneAttachment makes the attachment of one email. It keeps only a weak pointer to the content.
type oneAttachment struct {
	content  weak.Pointer[byte]
	released bool
}

func (o *oneAttachment) Reserve(context.Context, attachment.Need) (*attachment.Room, error) {
	return &attachment.Room{
		Read: func(context.Context) ([]provider.Attachment, error) {
			content := make([]byte, 10<<20)
			o.content = weak.Make(&content[0])
			return []provider.Attachment{{Filename: "a.pdf", Content: content}}, nil
		},
		Release: func() { o.released = true },
	}, nil
}

// A result that is recorded later keeps no attachments and no body in memory: their part of the budget is free already.
func TestHandle_LockedEmailKeepsNoContent(t *testing.T) {
	t.Parallel()
	for name, failure := range map[string]*provider.Failure{
		"sent":  nil,
		"retry": {Outcome: provider.Retry, Code: "TEST", Category: provider.TransientError, Reason: "test"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			attachments, sender := &oneAttachment{}, &forgettingSender{failure: failure}
			b := newBench(t, func(p *pipeline.Params) { p.Attachments, p.Sender = attachments, sender })
			id := b.Accept(t, b.company, nil)
			b.exec(t, `UPDATE email_outbox SET attachments = 1`)
			sender.during = func() { sender.locked = b.lock(t, id) }
			if err := b.handle(t, id); err != nil {
				t.Errorf("handle = %v, want the result recorded later", err)
			}
			runtime.GC()
			switch {
			case sender.locked == nil || !attachments.released:
				t.Error("the email was not sent")
			case b.pipeline.Stop(ended(t)) == nil:
				t.Error("the result is not waiting for the lock")
			case attachments.content.Value() != nil:
				t.Error("the attachments are still in memory")
			case sender.html.Value() != nil:
				t.Error("the html is still in memory")
			}
			if err := sender.locked.Rollback(); err != nil {
				t.Error(err)
			}
			if err := b.pipeline.Stop(t.Context()); err != nil {
				t.Error(err)
			}
			want := email.Sent
			if failure != nil {
				want = email.RetryScheduled
			}
			if got := b.find(t, id).Status; got != want {
				t.Errorf("status = %s, want %s", got, want)
			}
		})
	}
}

// ended is a context that has ended.
func ended(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

// forgettingSender keeps no messages, and only a weak pointer to the html.
type forgettingSender struct {
	during  func()
	locked  *sql.Tx
	html    weak.Pointer[byte]
	failure *provider.Failure
}

func (s *forgettingSender) Send(_ context.Context, m provider.Message) (provider.Receipt, error) {
	s.html = weak.Make(unsafe.StringData(m.HTML))
	s.during()
	if s.failure != nil {
		return provider.Receipt{}, s.failure
	}
	return provider.Receipt{MessageID: "ses-1"}, nil
}

// A claim's answer is lost, and the row is locked at the retry. The claim may be committed, so it
// is retried until the lock is gone.
func TestHandle_LostClaimAnswerThenLock(t *testing.T) {
	t.Parallel()
	var b *bench
	var locked *sql.Tx
	tries := 0
	b = newBench(t, func(p *pipeline.Params) {
		p.Advancer = &interrupted{p.Advancer, func(tr outbox.Transition) (before, after bool) {
			if tr.Guard != outbox.GuardClaim {
				return false, false
			}
			switch tries++; tries {
			case 1:
				return false, true
			case 2:
				locked = b.lock(t, tr.ID)
			case 3:
				if err := locked.Rollback(); err != nil {
					t.Error(err)
				}
			}
			return false, false
		}}
	})
	id := b.Accept(t, b.company, nil)
	if err := b.handle(t, id); err != nil {
		t.Fatal(err)
	}
	if e := b.find(t, id); e.Status != email.Sent || e.Attempts != 1 || tries != 3 {
		t.Errorf("%+v after %d tries of its claim", e, tries)
	}
}

// lock locks an email's row in another session.
func (b *bench) lock(t *testing.T, id uuid.UUID) *sql.Tx {
	t.Helper()
	tx, err := b.SQL.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	if _, err := tx.ExecContext(t.Context(), `SELECT FROM email_outbox WHERE id = $1 FOR UPDATE`, id); err != nil {
		t.Fatal(err)
	}
	return tx
}

func (b *bench) row(t *testing.T, id uuid.UUID) (text string) {
	t.Helper()
	if err := b.SQL.QueryRowContext(t.Context(), `SELECT to_jsonb(o) FROM email_outbox o WHERE id = $1`, id).Scan(&text); err != nil {
		t.Fatal(err)
	}
	return text
}

// callingSender signals the first call and blocks it until it is released.
type callingSender struct {
	other  provider.Sender
	first  uuid.UUID
	called chan uuid.UUID
	answer chan struct{}
}

func (s *callingSender) Send(ctx context.Context, m provider.Message) (provider.Receipt, error) {
	if m.OutboxID == s.first.String() {
		s.called <- s.first
		<-s.answer
	}
	return s.other.Send(ctx, m)
}

// Without room for retries the task of a locked email is dropped with a note for the rescuer, so it
// does not count as lost.
func TestHandle_DroppedTaskOfLockedEmailIsNoted(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(p *pipeline.Params) { p.RetryRoom = retryRoom(false) })
	id := b.Accept(t, b.company, nil)
	b.exec(t, `UPDATE email_outbox SET status = 'ENQUEUED', enqueued_at = now()`)
	b.lock(t, id)
	for range 2 { // a task may be delivered twice
		if err := b.pipeline.Handle(t.Context(), b.task(t, id)); err != nil {
			t.Errorf("handle = %v, want the task acknowledged", err)
		}
	}
	var noted int
	if err := b.SQL.QueryRowContext(t.Context(), `SELECT count(*) FROM dropped_tasks JOIN email_outbox o USING (enqueued_at) WHERE o.id = outbox_id`).Scan(&noted); err != nil || noted != 1 {
		t.Errorf("%d notes, %v", noted, err)
	}
}
