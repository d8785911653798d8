package pipeline_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"email-gateway/shared/store/outbox"
	"email-gateway/worker/internal/pipeline"
	"email-gateway/worker/internal/provider"
)

// counter is a pacer that counts the tokens used beside the one of each admission.
type counter struct {
	unpaced
	waited, borrowed atomic.Int64
}

func (c *counter) Wait(_ context.Context, n int) error { c.waited.Add(int64(n)); return nil }
func (c *counter) Borrow(n int)                        { c.borrowed.Add(int64(n)) }
func (c *counter) Return(n int)                        { c.borrowed.Add(int64(-n)) }

// An admitted email borrows the tokens of its other recipients and waits for none. An email that is
// not sent returns all of them.
func TestHandle_TokensOfAdmittedEmails(t *testing.T) {
	t.Parallel()
	copies := func(e *outbox.NewEmail) {
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			e.Job.CC = append(e.Job.CC, "cc-"+name+"@example.com")
			e.Job.BCC = append(e.Job.BCC, "bcc-"+name+"@example.com")
		}
	}
	for name, tt := range map[string]struct {
		email    func(*outbox.NewEmail)
		admitted time.Duration // from now on, so that the token stays valid; 0 = not admitted
		prepare  string        // a change of its row
		failure  *provider.Failure
		waited   int64
		borrowed int64
	}{
		"one recipient":            {nil, time.Hour, "", nil, 0, 0},
		"eleven":                   {copies, time.Hour, "", nil, 0, 10},
		"the provider refuses":     {copies, time.Hour, "", &provider.Failure{Outcome: provider.Failed, Code: "X", Category: provider.PermanentError}, 0, 10},
		"sent before":              {copies, time.Hour, "status = 'SENT', processed_at = now()", nil, 0, -1},
		"not due":                  {copies, time.Hour, "next_at = now() + interval '1 hour'", nil, 0, -1},
		"the token is too old":     {nil, -time.Hour, "", nil, 1, 0},
		"not admitted":             {copies, 0, "", nil, 11, 0},
		"neither admitted nor due": {copies, 0, "next_at = now() + interval '1 hour'", nil, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tokens := &counter{}
			b := newBench(t, func(p *pipeline.Params) { p.Pacer = tokens })
			id := b.Accept(t, b.company, tt.email)
			task := b.task(t, id)
			if tt.prepare != "" {
				b.exec(t, "UPDATE email_outbox SET "+tt.prepare+" WHERE id = $1", id)
			}
			if tt.failure != nil {
				b.sender.fail(1, *tt.failure)
			}
			if tt.admitted != 0 {
				task.Admitted = time.Now().Add(tt.admitted)
			}
			_ = b.pipeline.Handle(t.Context(), task)
			if waited, borrowed := tokens.waited.Load(), tokens.borrowed.Load(); waited != tt.waited || borrowed != tt.borrowed {
				t.Errorf("waited for %d tokens, borrowed %d, want %d and %d", waited, borrowed, tt.waited, tt.borrowed)
			}
		})
	}
}
