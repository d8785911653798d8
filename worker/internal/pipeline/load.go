package pipeline

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/service"
	"email-gateway/shared/store"
	"email-gateway/shared/store/deadletter"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/telemetry"
)

// load loads the email of a task. A nil row without an error means that the task was dead-lettered
// because no retry can help. job and decodeErr are the decoded payload and the decoding error.
func (p *Pipeline) load(ctx context.Context, d *delivery, job email.SendJob, decodeErr error) (*outbox.LoadedEmail, error) {
	id, err := uuid.Parse(job.OutboxID)
	if decodeErr != nil || err != nil {
		// The task id is the outbox id too: the error of an undecodable payload can still be
		// recorded on its email.
		if id, err = uuid.Parse(d.ID); err != nil {
			return nil, p.deadLetterTask(ctx, d, email.CodeInvalidPayload, errors.Join(decodeErr, err))
		}
	}
	loading, giveUp := context.WithCancelCause(ctx)
	late := time.AfterFunc(lateAnswer, func() { giveUp(p.awaitDatabase(loading)) })
	row, err := p.Loader.Load(loading, id)
	late.Stop()
	giveUp(nil)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, p.deadLetterTask(ctx, d, email.CodeOutboxNotFound, err)
	case err != nil:
		p.Database.Failed()
		return nil, err
	case decodeErr == nil && job.CompanyID != "" && job.CompanyID != row.CompanyID.String():
		// The email belongs to another company: a task of this one must not change it.
		return nil, p.deadLetterTask(ctx, d, email.CodeOutboxNotFound, errors.New("companyId differs from the email's"))
	}
	return row, nil
}

// awaitDatabase returns an error as soon as Postgres does not answer; nil when the read has ended.
func (p *Pipeline) awaitDatabase(loading context.Context) error {
	for {
		p.Database.Failed()
		if err := p.Database.Ask(loading); err != nil && loading.Err() == nil {
			return errors.Join(store.ErrUnavailable, err)
		}
		if err := service.Pause(loading, lateAnswer); err != nil {
			return nil
		}
	}
}

// deadLetterTask stores a dead letter for a task that has no email.
func (p *Pipeline) deadLetterTask(ctx context.Context, d *delivery, code string, cause error) error {
	err := p.Outbox.DeadLetterTask(ctx, deadletter.Task{
		Target: d.Queue, Reason: code, Detail: cause.Error(), Payload: d.Payload, TaskID: d.ID,
	})
	if err != nil {
		return err
	}
	validation := email.ValidationOutbox
	if code == email.CodeInvalidPayload {
		validation = email.ValidationIntegrity
	}
	p.Metrics.validationFailed(validation)
	log := telemetry.EmailLogger(p.Log, telemetry.EmailOf(d.ID, d.Payload))
	log.Error("task dead-lettered", telemetry.State, email.Failed, telemetry.DurationMS, time.Since(d.received).Milliseconds(),
		"code", code, "error", email.MaskText(cause.Error()))
	return nil
}
