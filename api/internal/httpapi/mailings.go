package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
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
	"email-gateway/shared/telemetry"
)

// mailingRoute names the operation in idempotency_keys, whatever prefix it was called
// with. It must never change: keys of earlier releases stand under it.
const mailingRoute = "POST /mailings"

// mailingPath is where mailings are looked up.
const mailingPath = "/v1/mailings/"

// ingestTime is the most that writing a mailing into Postgres may take: two million
// rows at a fiftieth of the usual speed.
const ingestTime = 15 * time.Minute

// mailingAccepted is the answer 202. Whoever has it can rely on the mailing.
type mailingAccepted struct {
	MailingID  string              `json:"mailingId"`
	Status     store.MailingStatus `json:"status"`
	Accepted   int                 `json:"accepted"`
	Invalid    int                 `json:"invalid"`
	Duplicates int                 `json:"duplicates"`
	// EmptyFields is how many of the accepted lines leave a field empty that has no default.
	EmptyFields int              `json:"emptyFields"`
	Warnings    []mailingWarning `json:"warnings,omitempty"`
}

// dryAnswer is that of a dry run: with the first emails as they would be sent. They hold what
// the file says of people, so they are in this answer alone, and not in the stored one.
type dryAnswer struct {
	mailingAccepted
	Preview []mailing.Preview `json:"preview"`
}

// shown is the answer as this request gets it.
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

// mailingWarning is what the tenant may want to change, though the mailing is taken.
type mailingWarning struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// warningsOf says what is missing from a mailing's templates, of html and text each: a reader
// sees one of them. The header List-Unsubscribe has
// the link in any case, but many readers never see it.
func warningsOf(letter mailing.Letter) []mailingWarning {
	var warnings []mailingWarning
	for _, part := range letter.Without(mailmerge.FieldUnsubscribeURL) {
		warnings = append(warnings, mailingWarning{"NO_UNSUBSCRIBE_URL", part + " has no {{unsubscribe_url}}: who reads it sees no link to unsubscribe with"})
	}
	return warnings
}

// sendMailing takes in a mailing: first the whole form, its file into the storage, then
// everything about it in one transaction. A slow client is at no time one that holds a
// transaction.
func (a *API) sendMailing(c *gin.Context) error {
	if err := takeTime(c); err != nil {
		return err
	}
	defer allowAnswer(c)
	guard, err := keyOf(c.Request.Header, mailingRoute)
	if err != nil {
		return err
	}
	leave, err := enter(c.Request.Context(), a.mailings.forms, visitOf(c).caller.CompanyID)
	if err != nil {
		return err
	}
	defer leave()
	up, err := a.readUpload(c)
	stays := false
	defer func() {
		if !stays {
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
	m, judge, err := a.composeMailing(c, d, up)
	if err != nil {
		return a.replayInstead(c, guard, err)
	}
	m.RequestSHA256, m.Key = sum, guard.record(nil)
	answer, err := a.ingest(c, d, up.file, m, judge)
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
		stays = true
		return acceptUnknown("mailing", up.id.String())
	case err != nil:
		return a.replayInstead(c, guard, err)
	}
	stays = !d.dryRun() // its lines are known, and nothing else will be asked of the file
	a.wake(store.Lanes{Company: visitOf(c).caller.CompanyID, Queue: email.QueueMailings})
	visitOf(c).note(answer)
	if answer, err = d.shown(answer); err != nil {
		return err
	}
	a.answerAccepted(c, http.StatusAccepted, answer)
	return nil
}

// ingest writes the mailing with all its lines. nil means that it is there, whatever
// the way to know that was; a client that left meanwhile changes nothing.
func (a *API) ingest(c *gin.Context, d *mailingDraft, file mailing.File, m store.NewMailing, judge *mailing.Judge) ([]byte, error) {
	leave, err := enter(c.Request.Context(), a.mailings.ingests, m.CompanyID)
	if err != nil {
		return nil, err
	}
	defer func() { leave() }()
	m.Yield = func(wait func() error) (err error) {
		leave()
		leave = func() {}
		if err := wait(); err != nil {
			return err
		}
		again, err := enter(c.Request.Context(), a.mailings.ingests, m.CompanyID)
		if err == nil {
			leave = again
		}
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Request.Context()), ingestTime)
	defer cancel()
	reading, err := a.mailings.vault.Open(ctx, file, d.reading)
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
	_, answer, err := a.store.IngestMailing(ctx, m, mailing.Lines(reading, judge))
	crashpoint.At(crashpoint.UploadCommitted)
	switch {
	case errors.Is(err, store.ErrUnknownOutcome):
		if found, _ := a.lookUp(ctx, a.store.MailingExists, m.ID, false); found {
			return answer, nil
		}
		return nil, err
	case errors.Is(err, store.ErrInProgress) && m.Key != nil:
		return nil, a.underWay(ctx, twinUnderWay)
	case errors.Is(err, store.ErrInProgress):
		return nil, a.underWay(ctx, mailingUnderWay)
	}
	return answer, fileProblem(err)
}

// fileProblem tells the faults of a file, which are the caller's, and the storage's
// failures from other errors.
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

// answerOf is the 202 of a mailing with these lines.
func answerOf(m *store.NewMailing, warnings []mailingWarning) func(store.MailingCounts) ([]byte, error) {
	id, held, dry := m.ID.String(), m.Held, m.DryRun
	return func(n store.MailingCounts) ([]byte, error) {
		status := store.MailingQueued
		switch {
		case dry, n.Accepted == 0:
			status = store.MailingCompleted
		case held:
			status = store.MailingPaused
		}
		answer, err := json.Marshal(mailingAccepted{id, status, n.Accepted, n.Invalid, n.Duplicates, n.EmptyFields, warnings})
		if err != nil {
			return nil, fmt.Errorf("encode answer: %w", err)
		}
		return answer, nil
	}
}
