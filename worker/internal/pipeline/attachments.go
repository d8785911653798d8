package pipeline

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"email-gateway/shared/email"
	"email-gateway/shared/keyring"
	"email-gateway/shared/service"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/telemetry"
	"email-gateway/worker/internal/attachment"
)

// Attachments gives memory to attachments and large bodies, and reads attachments; see *attachment.Loader.
type Attachments interface {
	Reserve(ctx context.Context, n attachment.Need) (*attachment.Room, error)
}

// storageDelay is how long an email waits in the outbox while the file storage cannot be reached, or up to twice as long. No
// attempt is spent.
const storageDelay = 10 * time.Second

// reserve waits for the memory of a body of this size, if it is large, and of attachments, before they are read.
func (p *Pipeline) reserve(ctx context.Context, log *slog.Logger, a *attempt, body int64) (done bool, err error) {
	n := a.need(body)
	if n.Count == 0 && n.Body == 0 {
		return false, nil
	}
	room, err := p.Attachments.Reserve(ctx, n)
	if err != nil {
		return true, p.withoutAttachments(ctx, log, a, err)
	}
	a.room = room
	return false, nil
}

// reserveRendered reserves memory anew if the body of a mailing's email is larger than estimated: its values may make
// it much larger than the templates. The estimate of the next emails follows. The body of any other email has its size
// already.
func (p *Pipeline) reserveRendered(ctx context.Context, log *slog.Logger, a *attempt) (done bool, err error) {
	size := int64(len(a.html) + len(a.text))
	if a.shared == nil {
		return false, nil
	}
	estimate := a.shared.size.Load()
	if estimate > outbox.SmallBody && size < estimate/2 { // one long row must not slow down the rest of its mailing
		a.shared.size.CompareAndSwap(estimate, max(size, estimate-estimate/8))
	}
	if size <= max(estimate, a.row.LargeFields, outbox.SmallBody) {
		return false, nil
	}
	a.shared.size.Store(size) // of two concurrent estimates, either is good enough
	a.room.Release()
	return p.reserve(ctx, log, a, size)
}

// loadAttachments reads the attachments before the email is claimed, so that it costs neither an attempt nor a part of
// the lease if they cannot be read now.
func (p *Pipeline) loadAttachments(ctx context.Context, log *slog.Logger, a *attempt) (done bool, err error) {
	if a.need(0).Count == 0 {
		return false, nil
	}
	loading, span := p.Tracer.Start(ctx, "load attachments", telemetry.Internal)
	defer span.End()
	if a.attachments, err = a.room.Read(loading); err != nil {
		return true, p.withoutAttachments(ctx, log, a, err)
	}
	return false, nil
}

// withoutAttachments postpones or fails an email for which there is no memory, or whose attachments cannot be read, and returns
// what the task returns.
func (p *Pipeline) withoutAttachments(ctx context.Context, log *slog.Logger, a *attempt, err error) error {
	var busy *attachment.BusyError
	var missing *attachment.MissingError
	var notTried *attachment.NotTriedError
	switch {
	case errors.As(err, &busy):
		p.Metrics.postponed("busy")
		return p.postponer.postpone(ctx, a, busy.Delay)
	case errors.As(err, &notTried):
		p.Metrics.postponed("unavailable")
		return p.postponer.postpone(ctx, a, service.Jitter(notTried.Delay, 1))
	case errors.Is(err, attachment.ErrUnavailable):
		p.Metrics.postponed("unavailable")
		p.logUnread(log, err)
		return p.postponer.postpone(ctx, a, service.Jitter(storageDelay, 1))
	case errors.As(err, &missing) && missing.Delay > 0:
		p.Metrics.postponed("missing")
		if omitted, ok := p.waiting.Allow("missing file"); ok {
			log.Warn("a file is missing or damaged: its emails wait before they fail", "delay", missing.Delay.String(), "omitted", omitted, "error", missing.Error())
		}
		return p.postponer.postpone(ctx, a, service.Jitter(missing.Delay, 1))
	case errors.As(err, &missing):
		return p.refuse(ctx, log, a, &refusal{email.ValidationIntegrity, email.CodeAttachmentMissing, missing.Error()})
	}
	return err
}

// logUnread logs that attachments cannot be read.
func (p *Pipeline) logUnread(log *slog.Logger, err error) {
	if errors.Is(err, keyring.ErrNoKey) {
		if omitted, ok := p.waiting.Allow("CPF_CNPJ_KEYS"); ok {
			log.Warn("CPF_CNPJ_KEYS lacks the key of attachments: their emails wait for it", "delay", storageDelay.String(), "omitted", omitted)
		}
		return
	}
	if omitted, ok := p.waiting.Allow("STORAGE_URL"); ok {
		log.Warn("attachments cannot be read: the email waits for the file storage", "delay", storageDelay.String(), "omitted", omitted,
			"error", email.MaskText(err.Error()))
	}
}
