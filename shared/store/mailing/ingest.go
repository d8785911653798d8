package mailing

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"email-gateway/shared/crashpoint"
	"email-gateway/shared/email"
	"email-gateway/shared/store/file"
	"email-gateway/shared/store/idempotency"
	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/internal/pgtext"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/quota"
)

// NewMailing is a mailing to accept, without its lines. Subject, HTML and Text are templates,
// which the caller has checked.
type NewMailing struct {
	ID             uuid.UUID // UUIDv7
	CompanyID      uuid.UUID
	RequestID      string
	Filename       string // 1 to 255 characters
	StorageURL     string // of the encrypted file, stored already
	FileBytes      int64  // of the stored file
	FileSHA256     []byte
	RequestSHA256  []byte // of the whole request, including the file
	DryRun         bool   // check only: COMPLETED at once, nothing is ever sent
	Held           bool   // PAUSED until StartMailing
	Subject        string
	SubjectWritten string // the subject to display, if it differs from Subject; "" = it does not
	HTML           string // "" = none, if there is a Text
	Text           string // "" = none
	Template       string // name@version or name/locale@version of the stored template of these three; "" = none
	Variables      string // JSON: the variables that this version declares; "" without Template
	NoAutoText     bool   // do not generate a text part from the HTML if Text is ""
	HTMLSHA256     []byte
	CheckerVersion int
	Fields         []string // the columns that the templates use, in the order of NewEntry.Fields
	EmailColumn    string   // the header of the address column, named in the reports about an invalid address or a duplicate
	Sender         string
	ReplyTo        string // "" = none
	Tags           []string
	Delivery       email.Delivery    // "" = at_least_once
	SendAt         time.Time         // zero = now; the job is due then
	Tests          []outbox.NewEmail // complete separate emails, accepted in the same commit
	Key            *idempotency.Key  // nil = none; its Answer is filled in from Answer
	Traceparent    string            // the trace of its first job; "" = none
	Attachments    []file.Attachment // of every email
	// Yield runs wait, which waits until a concurrent request with the same key or filename is
	// committed, and lets other mailings be ingested during the wait. nil = it is not called.
	Yield func(wait func() error) error
	// Answer builds the response to the request from the counts. The response is stored, and
	// returned again if the request is repeated.
	Answer func(Counts) ([]byte, error)
}

// Counts are the counts of a mailing's lines: Total = Accepted + Invalid + Duplicates.
type Counts struct {
	Total      int
	Accepted   int
	Invalid    int // entries with an invalid address, and rejected lines
	Duplicates int // lines with the address of an earlier entry, which may be invalid
	// EmptyFields is how many accepted lines leave a column empty that a template uses, or have an id that does not
	// identify one person.
	EmptyFields int
	// SharedIDs is about how many accepted lines have their external id in common with at least three others, and
	// SharedTaxIDs how many have none but a CPF or CNPJ in common: their recipients have one id.
	SharedIDs, SharedTaxIDs int
}

// FilenameUsedError reports that a mailing of the company has the filename and is neither
// CANCELLED nor FAILED. RequestSHA256 and Answer are those of its request.
type FilenameUsedError struct {
	MailingID     uuid.UUID `db:"id"`
	RequestSHA256 []byte    `db:"request_sha256"`
	Answer        []byte    `db:"answer"`
}

func (e *FilenameUsedError) Error() string {
	return "filename already used by mailing " + e.MailingID.String()
}

// The conflicts of a claim, besides idempotency.ErrTaken; the look-up that follows returns the details.
var (
	errFilenameTaken = errors.New("filename taken")
	errClaimed       = errors.New("both were free") // rolls back a claim that was made only to wait
)

// IngestMailing writes a mailing with all its lines, its lane, its job and its test
// emails in one commit, and returns the counts and the answer made from them.
// Memory does not grow with the lines: they are streamed to Postgres.
//
// Line numbers and the entries' ids must ascend. Of entries with the same address,
// ignoring letter case, the first is kept. A mailing without valid lines is COMPLETED
// at once, as a dry run is: it has neither lane nor job.
//
// An error that lines yields is returned unchanged, and nothing was written. The same holds
// for *idempotency.UsedError, *FilenameUsedError, *quota.Error, idempotency.ErrInProgress, pg.ErrBusy (another transaction
// has locked the company's quotas), lane.ErrNone and pg.ErrUnavailable.
// After pg.ErrUnknownOutcome, counts and answer are valid if MailingExists finds the mailing. Between two
// lines there must be at most about 20 s: Postgres ends an idle transaction after that.
func (s *Store) IngestMailing(ctx context.Context, m NewMailing, lines iter.Seq2[Line, error]) (Counts, []byte, error) {
	// The conflicting row may be gone when it is looked up, because the key expired or the mailing
	// was cancelled. No line has been read by then, so the ingest can be repeated.
	m.EmailColumn = limitName(m.EmailColumn)
	for range 3 {
		in := ingest{mailing: m, copyTime: s.db.CopyTime()}
		err := s.db.InSteadyTx(ctx, func(tx pg.SteadyTx) error { return in.run(ctx, tx, lines) })
		if errors.Is(err, idempotency.ErrInProgress) {
			if err := s.awaitSameUpload(ctx, m); err != nil {
				return Counts{}, nil, fmt.Errorf("ingest mailing: %w", err)
			}
			continue
		}
		switch {
		case errors.Is(err, idempotency.ErrTaken):
			var used idempotency.StoredAnswer
			if used, err = s.keys.FindUsed(ctx, m.CompanyID, *m.Key); err == nil {
				return Counts{}, nil, &idempotency.UsedError{Answer: used}
			}
		case errors.Is(err, errFilenameTaken):
			holder := &FilenameUsedError{}
			if err = s.db.GetContext(ctx, holder, filenameHolderSQL, m.CompanyID, pgtext.WithoutNUL(m.Filename)); err == nil {
				return Counts{}, nil, holder
			}
			err = pg.Translate(err)
		default:
			return in.counts, in.answer, err
		}
		if !errors.Is(err, pg.ErrNotFound) {
			return Counts{}, nil, fmt.Errorf("ingest mailing: %w", err)
		}
	}
	return Counts{}, nil, idempotency.ErrInProgress
}

// awaitSameUpload waits, as long as pg.InBoundedTx permits, until no concurrent request is writing a mailing with the
// key or the filename.
func (s *Store) awaitSameUpload(ctx context.Context, m NewMailing) error {
	row := pg.HeldRow{Company: m.CompanyID, Name: "filename\x00" + m.Filename}
	if m.Key != nil {
		row = m.Key.Row(m.CompanyID)
	}
	wait := func() error {
		_, err := pg.InBoundedTx(ctx, s.db, row, func(tx *sqlx.Tx, _ time.Duration) ([]struct{}, error) {
			in := ingest{mailing: m}
			if err := in.claim(ctx, tx); err != nil {
				return nil, err
			}
			return nil, errClaimed
		})
		switch {
		case errors.Is(err, errClaimed), errors.Is(err, idempotency.ErrTaken), errors.Is(err, errFilenameTaken):
			return nil
		case errors.Is(err, pg.ErrBusy):
			return errors.Join(idempotency.ErrInProgress, err)
		}
		return err
	}
	if m.Yield == nil {
		return wait()
	}
	return m.Yield(wait)
}

// ingest is the state of one mailing's ingest.
type ingest struct {
	mailing  NewMailing
	copyTime time.Duration
	budget   *quota.Budget // of the last check of the quotas
	counts   Counts
	answer   []byte
	reasons  map[string]int // counts.Invalid by code
}

// Key and filename are claimed before the lines are read, so that only one of two identical
// requests does the work. The other one waits for its commit, because an insert waits for the
// transaction that has inserted the same unique key. It waits on a separate connection
// (awaitSameUpload). lock_timeout bounds the waits; it is shorter than statement_timeout, whose
// error would look like an unavailable database.
//
// insertMailingSQL checks the filename by mailings_filename. Its foreign key locks the company's row
// FOR KEY SHARE, which blocks neither suspending nor resuming the company. finishMailingSQL writes
// answer and counts.
const (
	insertMailingSQL = `
INSERT INTO mailings (id, company_id, request_id, filename, storage_url, file_sha256, request_sha256, answer, dry_run,
                      subject, html, text_body, auto_text, html_sha256, checker_version, fields, sender, reply_to, tags, delivery, send_at,
                      status, generation, total_lines, accepted, invalid, duplicates, subject_written, template, template_variables, attachments, email_column)
VALUES ($1, $2, $3, $4, $5, $6, $7, '', $8, $9, $10, nullif($11, ''), $22, $12, $13, $14, $15, nullif($16, ''), $17, $18, $19,
        'QUEUED', $20, 0, 0, 0, 0, nullif($21, ''), nullif($23, ''), nullif($24, ''), nullif($25::bigint, 0), nullif($26, ''))
ON CONFLICT (company_id, filename) WHERE NOT dry_run AND NOT nothing_to_send AND status NOT IN ('CANCELLED', 'FAILED') DO NOTHING`

	// filenameHolderSQL reads one row by mailings_filename and locks nothing.
	filenameHolderSQL = `
SELECT id, request_sha256, answer FROM mailings
WHERE company_id = $1 AND filename = $2 AND NOT dry_run AND NOT nothing_to_send AND status NOT IN ('CANCELLED', 'FAILED')`
)

// ingestWait bounds the wait for each lock after the claim.
const ingestWait = 5 * time.Second

func (in *ingest) run(ctx context.Context, tx pg.SteadyTx, lines iter.Seq2[Line, error]) error {
	if err := pg.MayIdle(ctx, tx.Tx); err != nil {
		return fmt.Errorf("begin mailing: %w", err)
	}
	if _, err := tx.ExecContext(ctx, pg.BoundWaitSQL, pg.LockTimeout(idempotency.InsertWait)); err != nil {
		return fmt.Errorf("begin mailing: %w", pg.Translate(err))
	}
	if err := in.claim(ctx, tx.Tx); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, pg.BoundWaitSQL, pg.LockTimeout(ingestWait)); err != nil {
		return fmt.Errorf("begin mailing: %w", pg.Translate(err))
	}
	crashpoint.At(crashpoint.UploadClaimed)
	w := newEntryWriter(ctx, tx, in.mailing, in.copyTime, in.budget)
	if err := w.writeAll(lines); err != nil {
		return err
	}
	crashpoint.At(crashpoint.UploadWritten)
	in.counts, in.reasons = w.counts, w.reasons
	in.counts.SharedIDs, in.counts.SharedTaxIDs = w.ids.Rows(), w.taxIDs.Rows()
	err := in.checkQuotas(ctx, tx.Tx, in.counts, in.status() == Queued, false)
	if err != nil {
		return err
	}
	if in.answer, err = in.mailing.Answer(in.counts); err != nil {
		return fmt.Errorf("answer mailing: %w", err)
	}
	if err := in.finish(ctx, tx.Tx, w.first, w.last); err != nil {
		return err
	}
	return ctx.Err() // the transaction would commit although the client has disconnected
}

// claim inserts the idempotency key and the mailing, which claims its filename.
func (in *ingest) claim(ctx context.Context, tx *sqlx.Tx) error {
	m := in.mailing
	if err := idempotency.Claim(ctx, tx, m.CompanyID, m.Key, m.ID); err != nil {
		return err
	}
	generation := 1
	if m.Held {
		generation = 0 // no job was ever written: StartMailing requires 0
	}
	html, text := m.templates()
	inserted, err := idempotency.Inserted(tx.ExecContext(ctx, insertMailingSQL,
		m.ID, m.CompanyID, pgtext.WithoutNUL(m.RequestID), pgtext.WithoutNUL(m.Filename), m.StorageURL, m.FileSHA256, m.RequestSHA256, m.DryRun,
		pgtext.WithoutNUL(m.Subject), html, text, m.HTMLSHA256, m.CheckerVersion, pg.TextArray(m.Fields),
		pgtext.WithoutNUL(m.Sender), pgtext.WithoutNUL(m.ReplyTo), pg.TextArray(m.Tags), string(cmp.Or(m.Delivery, email.AtLeastOnce)),
		sql.NullTime{Time: m.SendAt, Valid: !m.SendAt.IsZero()}, generation, pgtext.WithoutNUL(m.SubjectWritten), !m.NoAutoText,
		m.Template, pgtext.WithoutNUL(m.Variables), len(m.Attachments), pgtext.WithoutNUL(m.EmailColumn)))
	switch {
	case err != nil:
		return fmt.Errorf("insert mailing: %w", err)
	case !inserted:
		return errFilenameTaken
	}
	if err := file.Hold(ctx, tx, m.CompanyID, file.Owned{Owner: m.ID, Attachments: m.Attachments}); err != nil {
		return err
	}
	return in.checkQuotas(ctx, tx, Counts{Total: 1}, !m.DryRun && !m.Held, true)
}

// finishMailingSQL updates, by primary key, the row that this transaction has inserted. A mailing
// that sends nothing keeps no templates. insertMailingLaneSQL adds a row that no other transaction
// references.
const (
	finishMailingSQL = `
UPDATE mailings SET
    status = $2, completed_at = CASE WHEN $2 = 'COMPLETED' THEN clock_timestamp() END, first_entry = $3, last_entry = $4,
    total_lines = $5, accepted = $6, nothing_to_send = $6 = 0, invalid = $7, duplicates = $8, answer = $9, invalid_by_reason = $10, empty_fields = $11, counted_at = now(),
    file_bytes = $12, html = CASE WHEN $2 = 'COMPLETED' THEN '' ELSE html END, text_body = CASE WHEN $2 <> 'COMPLETED' THEN text_body END,
    template_variables = CASE WHEN $2 <> 'COMPLETED' THEN template_variables END
WHERE id = $1`

	insertMailingLaneSQL = `
INSERT INTO dispatch_lanes (company_id, queue, mailing_id, paused_at) VALUES ($1, $2, $3, CASE WHEN $4 THEN now() END)`
)

// testsFirst is the delay of the other emails, so that the test emails are sent first.
const testsFirst = 5 * time.Second

// begin returns when the mailing's first job is due.
func (m *NewMailing) begin() time.Time {
	if ahead := time.Now().Add(testsFirst); len(m.Tests) > 0 && m.SendAt.Before(ahead) {
		return ahead
	}
	return m.SendAt
}

// status returns the mailing's status after its ingest.
func (in *ingest) status() Status {
	switch {
	case in.mailing.DryRun, in.counts.Accepted == 0:
		return Completed
	case in.mailing.Held:
		return Paused
	}
	return Queued
}

// finish writes the counts, the answer, the lane, the first job and the test emails.
func (in *ingest) finish(ctx context.Context, tx *sqlx.Tx, first, last uuid.UUID) error {
	m, n := in.mailing, in.counts
	status := in.status()
	found := first != uuid.Nil
	reasons, err := json.Marshal(in.reasons)
	if err != nil {
		return fmt.Errorf("encode reasons: %w", err)
	}
	_, err = tx.ExecContext(ctx, finishMailingSQL, m.ID, string(status), uuid.NullUUID{UUID: first, Valid: found}, uuid.NullUUID{UUID: last, Valid: found},
		n.Total, n.Accepted, n.Invalid, n.Duplicates, in.answer, string(reasons), n.EmptyFields, m.FileBytes)
	if err != nil {
		return fmt.Errorf("finish mailing: %w", pg.Translate(err))
	}
	if m.Key != nil {
		if err := idempotency.WriteAnswer(ctx, tx, m.CompanyID, *m.Key, in.answer); err != nil {
			return fmt.Errorf("answer idempotency key: %w", err)
		}
	}
	if status != Completed {
		if _, err := tx.ExecContext(ctx, insertMailingLaneSQL, m.CompanyID, mailingQueue, m.ID, m.Held); err != nil {
			return fmt.Errorf("insert lane: %w", pg.Translate(err))
		}
	}
	if status == Queued {
		job := outbox.MailingJob{MailingID: m.ID, CompanyID: m.CompanyID, RequestID: m.RequestID, StorageURL: m.StorageURL, Generation: 1, SendAt: m.begin(), Traceparent: m.Traceparent}
		if err := outbox.InsertMailingJob(ctx, tx, job); err != nil {
			return err
		}
	}
	if m.DryRun {
		return nil
	}
	if err := outbox.AcceptIn(ctx, tx, m.Tests, ingestWait); err != nil {
		return err
	}
	attached := outbox.Attached(m.Tests)
	if status != Completed { // a mailing that sends nothing keeps no files
		attached = append(attached, file.Owned{Owner: m.ID, Attachments: m.Attachments})
	}
	return file.Link(ctx, tx, m.CompanyID, attached...)
}
