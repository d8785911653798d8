package mailings

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gin-gonic/gin"

	"email-gateway/api/internal/csvfile"
	"email-gateway/api/internal/httpapi/compose"
	"email-gateway/api/internal/httpapi/problem"
	"email-gateway/api/internal/mailing"
	"email-gateway/shared/blob"
	"email-gateway/shared/crashpoint"
	"email-gateway/shared/rules"
	"email-gateway/shared/store"
	"email-gateway/shared/store/file"
	"email-gateway/shared/store/idempotency"
	mailingstore "email-gateway/shared/store/mailing"
	"email-gateway/shared/telemetry"
)

// IngestTime limits writing a mailing to Postgres: two million rows at a fiftieth of the usual
// speed.
const IngestTime = 15 * time.Minute

// ingest writes the mailing with all its lines. A nil error means that it is stored. It
// continues if the client disconnects.
func (h *Handlers) ingest(c *gin.Context, d *mailingDraft, upload mailing.File, m mailingstore.NewMailing, validator *mailing.Validator) ([]byte, error) {
	release, err := compose.EnterUpload(c.Request.Context(), h.uploads.ingests, m.CompanyID)
	if err != nil {
		return nil, err
	}
	defer func() { release() }()
	m.Yield = func(wait func() error) (err error) {
		release()
		release = func() {}
		if err := wait(); err != nil {
			return err
		}
		again, err := compose.EnterUpload(c.Request.Context(), h.uploads.ingests, m.CompanyID)
		if err == nil {
			release = again
		}
		return err
	}
	answerOf := m.Answer
	m.Answer = func(n mailingstore.Counts) ([]byte, error) { // called when all lines are written, before the commit
		if err := h.StillValid(c); err != nil {
			return nil, err
		}
		return answerOf(n)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Request.Context()), h.IngestTime)
	defer cancel()
	answer, err := h.ingestWithin(ctx, d, upload, m, validator)
	if err != nil && ctx.Err() != nil && !errors.Is(err, store.ErrUnknownOutcome) {
		// The deadline can only be this one. A client that is told to repeat the request would do so for ever.
		return nil, fmt.Errorf("%w: %w", tooSlow, err)
	}
	return answer, err
}

func (h *Handlers) ingestWithin(ctx context.Context, d *mailingDraft, upload mailing.File, m mailingstore.NewMailing, validator *mailing.Validator) ([]byte, error) {
	reading, err := h.files.Open(ctx, upload, d.reading)
	if err != nil {
		return nil, fileProblem(err)
	}
	defer func() { _ = reading.Close() }()
	crashpoint.At(crashpoint.UploadStored)
	ctx, span := h.Tracer.Start(ctx, "ingest", telemetry.Producer)
	defer span.End()
	m.Traceparent = telemetry.Traceparent(ctx)
	for i := range m.Tests {
		m.Tests[i].Job.Traceparent = m.Traceparent
	}
	_, answer, err := h.Store.IngestMailing(ctx, m, mailing.Lines(reading, validator))
	crashpoint.At(crashpoint.UploadCommitted)
	gone, lost := errors.AsType[*file.GoneError](err)
	switch {
	case errors.Is(err, store.ErrUnknownOutcome):
		if found, _ := h.Accept.LookUp(ctx, h.Store.MailingExists, m.ID, false); found {
			return answer, nil
		}
		return nil, err
	case lost:
		return nil, invalid(goneFaults(gone, m.Attachments))
	case errors.Is(err, idempotency.ErrInProgress) && m.Key != nil:
		return nil, h.Accept.InProgress(ctx, problem.SameKeyInProgress)
	case errors.Is(err, idempotency.ErrInProgress):
		return nil, h.Accept.InProgress(ctx, inProgress)
	}
	return answer, fileProblem(err)
}

// goneFaults are the faults of attachments whose files were deleted between the checks and the commit.
func goneFaults(gone *file.GoneError, attached []file.Attachment) (faults rules.Faults) {
	for i, one := range attached {
		if slices.Contains(gone.IDs, one.FileID) {
			faults.Add(fmt.Sprintf("%s[%d].fileId", mailing.PartAttach, i), compose.CodeFileNotFound, compose.FileDeleted)
		}
	}
	return faults
}

// fileProblem maps faults of the file, which are the caller's, and failures of the storage.
func fileProblem(err error) error {
	if wrong, ok := errors.AsType[*csvfile.FileError](err); ok {
		var f rules.Faults
		f.Add(mailing.PartFile, wrong.Code, wrong.Error())
		return invalid(f)
	}
	if errors.Is(err, blob.ErrUnavailable) || errors.Is(err, blob.ErrNotFound) {
		return fmt.Errorf("%w: %w", compose.StorageUnavailable, err)
	}
	return err
}
