package pipeline_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/blob"
	"email-gateway/shared/email"
	"email-gateway/shared/keyring"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/unsubscribe"
	"email-gateway/worker/internal/attachment"
	"email-gateway/worker/internal/pipeline"
	"email-gateway/worker/internal/provider"
)

// unread are attachments whose every read fails.
type unread struct{ err error }

func (u unread) Reserve(context.Context, attachment.Need) (*attachment.Room, error) {
	return &attachment.Room{Read: func(context.Context) ([]provider.Attachment, error) { return nil, u.err }, Release: func() {}}, nil
}

// Emails that all wait for the same thing are logged once, not one by one, and use up no try.
func TestHandle_ManyWaitForOneCause(t *testing.T) {
	t.Parallel()
	mailing := uuid.Must(uuid.NewV7())
	for name, c := range map[string]struct {
		of   string // changes the emails
		err  error
		want string
	}{
		"no key of links": {"", nil, "unsubscribe links need a setting: emails of mailings wait for it"},
		"no key of files": {
			`UPDATE email_outbox SET attachments = 1`, fmt.Errorf("%w: %w", attachment.ErrUnavailable, keyring.ErrNoKey),
			"CPF_CNPJ_KEYS lacks the key of attachments: their emails wait for it",
		},
		"no storage": {
			`UPDATE email_outbox SET attachments = 1`, fmt.Errorf("%w: %w", attachment.ErrUnavailable, blob.ErrUnavailable),
			"attachments cannot be read: the email waits for the file storage",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, log, _ := logged(t, func(p *pipeline.Params) { p.Attachments = unread{c.err} })
			start := time.Now()
			for range 10 {
				id := b.Accept(t, b.company, func(e *outbox.NewEmail) {
					if c.of == "" {
						e.Job.Headers = unsubscribe.Reference(mailing)
					}
				})
				b.exec(t, `UPDATE email_outbox SET status = 'ENQUEUED', enqueued_at = now() WHERE id = $1`, id)
				if c.of != "" {
					b.exec(t, c.of)
				}
				if err := b.handle(t, id); err != nil {
					t.Fatal(err)
				}
				b.expect(t, id, email.Pending, 0, 0)
			}
			found := 0
			for _, line := range linesOf(t, log) {
				if line["message"] == c.want {
					found++
				}
			}
			if found < 1 || found > 1+int(time.Since(start)/(30*time.Second)) {
				t.Errorf("%d lines %q", found, c.want)
			}
		})
	}
}
