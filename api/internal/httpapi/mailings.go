package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/gin-gonic/gin"

	"email-gateway/api/internal/csvfile"
	"email-gateway/api/internal/mailing"
	"email-gateway/shared/blob"
	"email-gateway/shared/crashpoint"
	"email-gateway/shared/email"
	"email-gateway/shared/mailmerge"
	"email-gateway/shared/rules"
	"email-gateway/shared/store"
	stored "email-gateway/shared/store/file"
	"email-gateway/shared/telemetry"
)

// mailingRoute identifies the operation in idempotency_keys, for both prefixes. It must never
// change: keys of earlier releases are stored with it.
const mailingRoute = "POST /mailings"

// mailingPath is the path of mailings.
const mailingPath = "/v1/mailings/"

// ingestTime limits writing a mailing to Postgres: two million rows at a fiftieth of the usual
// speed.
const ingestTime = 15 * time.Minute

// mailingAccepted is the 202 response: the mailing is durably stored.
type mailingAccepted struct {
	MailingID  string              `json:"mailingId"`
	Status     store.MailingStatus `json:"status"`
	Accepted   int                 `json:"accepted"`
	Invalid    int                 `json:"invalid"`
	Duplicates int                 `json:"duplicates"`
	// EmptyFields counts the accepted lines with an empty field that has no default.
	EmptyFields int              `json:"emptyFields"`
	Warnings    []mailingWarning `json:"warnings,omitempty"`
	// Template is the version that the mailing keeps.
	Template *templateRef `json:"template,omitempty"`
}

// dryAnswer is the response of a dry run, with the first emails as they would be sent. They
// contain personal data of the file, so the stored response does not include them.
type dryAnswer struct {
	mailingAccepted
	Preview []mailing.Preview `json:"preview"`
}

// shown returns the response for this request.
func (d *mailingDraft) shown(answer []byte) ([]byte, error) {
	if !d.dryRun() {
		return answer, nil
	}
	var dry dryAnswer
	if err := json.Unmarshal(answer, &dry.mailingAccepted); err != nil {
		return nil, fmt.Errorf("read answer: %w", err)
	}
	dry.Preview = d.preview
	shown, err := json.Marshal(dry)
	if err != nil {
		return nil, fmt.Errorf("encode answer: %w", err)
	}
	return shown, nil
}

// mailingWarning is a possible problem of a mailing that was accepted.
type mailingWarning struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// warningsOf reports what is missing from a mailing's templates, for html and text separately:
// a mail client shows one of them. The List-Unsubscribe header always has the link, but many
// mail clients do not show it.
func warningsOf(content mailing.Content) []mailingWarning {
	var warnings []mailingWarning
	for _, part := range content.Without(mailmerge.FieldUnsubscribeURL) {
		warnings = append(warnings, mailingWarning{"NO_UNSUBSCRIBE_URL", part + " has no {{unsubscribe_url}}: recipients see no unsubscribe link"})
	}
	return warnings
}

// sendMailing accepts a mailing: it receives the whole form and stores its file, then writes
// everything in one transaction. A slow client never holds a transaction open.
func (a *API) sendMailing(c *gin.Context) error {
	if err := liftWriteDeadline(c); err != nil {
		return err
	}
	defer extendWriteDeadline(c)
	guard, err := keyOf(c.Request.Header, mailingRoute)
	if err != nil {
		return err
	}
	release, err := enter(c.Request.Context(), a.mailings.forms, visitOf(c).caller.CompanyID)
	if err != nil {
		return err
	}
	defer release()
	up, err := a.readUpload(c)
	keepFile := false
	defer func() {
		if !keepFile {
			a.dropFile(c, up.file)
		}
	}()
	if err != nil {
		return err
	}
	d := draftMailing(a.rules, visitOf(c).caller, up.form, time.Now())
	sum, err := d.sum(up.file.Seen.SHA256, a.composer.hashKey)
	if err != nil {
		return err
	}
	if guard != nil {
		guard.sum = sum
	}
	m, validator, err := a.composeMailing(c, d, up)
	if err != nil {
		return a.replayInstead(c, guard, err)
	}
	m.RequestSHA256, m.Key = sum, guard.record(nil)
	answer, err := a.ingest(c, d, up.file, m, validator)
	var used *store.KeyUsedError
	var taken *store.FilenameUsedError
	switch {
	case errors.As(err, &used):
		if used.Answer.Answer, err = d.shown(used.Answer.Answer); err != nil {
			return err
		}
		return a.replay(c, guard, used.Answer)
	case errors.As(err, &taken) && bytes.Equal(taken.RequestSHA256, sum):
		return a.replay(c, &onceGuard{sum: sum}, store.StoredAnswer{BodySHA256: sum, Status: http.StatusAccepted, Answer: taken.Answer})
	case errors.As(err, &taken):
		return filenameExists(taken.MailingID.String(), d.filename)
	case errors.Is(err, store.ErrUnknownOutcome):
		keepFile = true
		return acceptUnknown("mailing", up.id.String())
	case err != nil:
		return a.replayInstead(c, guard, err)
	}
	keepFile = !d.dryRun() // a dry run needs the file only for this response
	a.wake(store.Lanes{Company: visitOf(c).caller.CompanyID, Queue: email.QueueMailings})
	visitOf(c).note(answer)
	if answer, err = d.shown(answer); err != nil {
		return err
	}
	a.answerAccepted(c, http.StatusAccepted, answer)
	return nil
}

// ingest writes the mailing with all its lines. A nil error means that it is stored. It
// continues if the client disconnects.
func (a *API) ingest(c *gin.Context, d *mailingDraft, file mailing.File, m store.NewMailing, validator *mailing.Validator) ([]byte, error) {
	release, err := enter(c.Request.Context(), a.mailings.ingests, m.CompanyID)
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
		again, err := enter(c.Request.Context(), a.mailings.ingests, m.CompanyID)
		if err == nil {
			release = again
		}
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Request.Context()), ingestTime)
	defer cancel()
	reading, err := a.mailings.files.Open(ctx, file, d.reading)
	if err != nil {
		return nil, fileProblem(err)
	}
	defer func() { _ = reading.Close() }()
	crashpoint.At(crashpoint.UploadStored)
	ctx, span := a.tracer.Start(ctx, "ingest", telemetry.Producer)
	defer span.End()
	m.Traceparent = telemetry.Traceparent(ctx)
	for i := range m.Tests {
		m.Tests[i].Job.Traceparent = m.Traceparent
	}
	_, answer, err := a.store.IngestMailing(ctx, m, mailing.Lines(reading, validator))
	crashpoint.At(crashpoint.UploadCommitted)
	gone, lost := errors.AsType[*stored.GoneError](err)
	switch {
	case errors.Is(err, store.ErrUnknownOutcome):
		if found, _ := a.lookUp(ctx, a.store.MailingExists, m.ID, false); found {
			return answer, nil
		}
		return nil, err
	case lost:
		return nil, invalidMailing(goneFaults(gone, m.Attachments))
	case errors.Is(err, store.ErrInProgress) && m.Key != nil:
		return nil, a.inProgress(ctx, sameKeyInProgress)
	case errors.Is(err, store.ErrInProgress):
		return nil, a.inProgress(ctx, mailingInProgress)
	}
	return answer, fileProblem(err)
}

// goneFaults are the faults of attachments whose files were deleted between the checks and the commit.
func goneFaults(gone *stored.GoneError, attached []stored.Attachment) (faults rules.Faults) {
	for i, one := range attached {
		if slices.Contains(gone.IDs, one.FileID) {
			faults.Add(fmt.Sprintf("%s[%d].fileId", mailing.PartAttach, i), codeFileNotFound, fileDeleted)
		}
	}
	return faults
}

// fileProblem maps faults of the file, which are the caller's, and failures of the storage.
func fileProblem(err error) error {
	if wrong, ok := errors.AsType[*csvfile.FileError](err); ok {
		var f rules.Faults
		f.Add(mailing.PartFile, wrong.Code, wrong.Error())
		return invalidMailing(f)
	}
	if errors.Is(err, blob.ErrUnavailable) || errors.Is(err, blob.ErrNotFound) {
		return fmt.Errorf("%w: %w", storageUnavailable, err)
	}
	return err
}

// answerOf returns the function that builds the 202 response from the counts.
func answerOf(m *store.NewMailing, warnings []mailingWarning, template *templateRef) func(store.MailingCounts) ([]byte, error) {
	id, held, dry := m.ID.String(), m.Held, m.DryRun
	return func(n store.MailingCounts) ([]byte, error) {
		status := store.MailingQueued
		switch {
		case dry, n.Accepted == 0:
			status = store.MailingCompleted
		case held:
			status = store.MailingPaused
		}
		answer, err := json.Marshal(mailingAccepted{id, status, n.Accepted, n.Invalid, n.Duplicates, n.EmptyFields, warnings, template})
		if err != nil {
			return nil, fmt.Errorf("encode answer: %w", err)
		}
		return answer, nil
	}
}
