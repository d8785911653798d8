package pipeline

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/telemetry"
	"email-gateway/worker/internal/attachment"
	"email-gateway/worker/internal/provider"
)

// Attachments reads the attachments of an email or of a mailing; see *attachment.Loader.
type Attachments interface {
	Load(ctx context.Context, company, owner uuid.UUID, count int) (all []provider.Attachment, release func(), err error)
}

// storageDelay is how long an email waits in the outbox while the file storage cannot be reached, up to twice as long at random,
// so that not all come again at once. It spends no try.
const storageDelay = 10 * time.Second

// loadAttachments reads the attachments before the email is claimed, so that it costs neither a try nor a part of the lease if
// they cannot be read now. ok is false if the email was postponed or failed; then err is what the task returns.
func (p *Pipeline) loadAttachments(ctx context.Context, log *slog.Logger, a *attempt) (release func(), ok bool, err error) {
	owner, count := a.row.ID, a.row.Attachments
	if a.row.MailingID.Valid {
		owner, count = a.row.MailingID.UUID, a.sharedFiles
	}
	if count == 0 {
		return func() {}, true, nil
	}
	loading, span := p.Tracer.Start(ctx, "load attachments", telemetry.Internal)
	defer span.End()
	a.attachments, release, err = p.Attachments.Load(loading, a.row.CompanyID, owner, count)
	var busy *attachment.BusyError
	var missing *attachment.MissingError
	switch {
	case err == nil:
		return release, true, nil
	case errors.As(err, &busy):
		p.Metrics.postponed("busy")
		return nil, false, p.postpone(ctx, a, busy.Delay)
	case errors.Is(err, attachment.ErrUnavailable):
		p.Metrics.postponed("unavailable")
		log.Warn("attachments cannot be read: the email waits for the file storage", "delay", storageDelay.String(), "error", email.MaskText(err.Error()))
		return nil, false, p.postpone(ctx, a, storageDelay+time.Duration(jitter()*float64(storageDelay)))
	case errors.As(err, &missing):
		return nil, false, p.refuse(ctx, log, a, &refusal{email.ValidationIntegrity, email.CodeAttachmentMissing, missing.Error()})
	}
	return nil, false, err
}
