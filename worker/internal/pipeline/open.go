package pipeline

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store"
	"email-gateway/shared/telemetry"
	"email-gateway/worker/internal/queue"
)

// open finds the email that the task is about. A nil row without an error means
// that the task was buried: nothing can be done for it, now or later. job and decodeErr are what
// came of its payload.
func (p *Pipeline) open(
	ctx context.Context, task queue.Task, job email.SendJob, decodeErr error, received time.Time,
) (*store.LoadedEmail, error) {
	id, err := uuid.Parse(job.OutboxID)
	if decodeErr != nil || err != nil {
		// The task's own id is the outbox id too: the email behind a broken payload
		// can still be told what happened.
		if id, err = uuid.Parse(task.ID); err != nil {
			return nil, p.bury(ctx, task, received, email.CodeInvalidPayload, errors.Join(decodeErr, err))
		}
	}
	row, err := p.Loader.Load(ctx, id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, p.bury(ctx, task, received, email.CodeOutboxNotFound, err)
	case err != nil:
		return nil, err
	case decodeErr == nil && job.CompanyID != "" && job.CompanyID != row.CompanyID.String():
		// Not this company's email. It must not be touched by somebody else's task.
		return nil, p.bury(ctx, task, received, email.CodeOutboxNotFound, errors.New("companyId is not the email's"))
	}
	return row, nil
}

// bury writes the dead letter of a task that has no email to write it on.
func (p *Pipeline) bury(ctx context.Context, task queue.Task, received time.Time, code string, cause error) error {
	err := p.Outbox.BuryTask(ctx, store.DeadTask{
		Target: task.Queue, Reason: code, Detail: cause.Error(), Payload: task.Payload, TaskID: task.ID,
	})
	if err != nil {
		return err
	}
	validation := email.ValidationOutbox
	if code == email.CodeInvalidPayload {
		validation = email.ValidationIntegrity
	}
	p.Metrics.validationFailed(validation)
	log := telemetry.EmailLogger(p.Log, telemetry.EmailOf(task.ID, task.Payload))
	log.Error("task buried", telemetry.State, email.Failed, telemetry.DurationMS, time.Since(received).Milliseconds(),
		"code", code, "cause", email.MaskText(cause.Error()))
	return nil
}
