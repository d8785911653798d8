package mailing

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/lib/pq"

	"email-gateway/shared/email"
	"email-gateway/shared/store/internal/pg"
)

// Status is the state of a mailing.
type Status string

// The states of a mailing. schema/README.md shows the transitions.
const (
	Queued     Status = "QUEUED"     // its job is queued
	Pending    Status = "PENDING"    // its job failed or was lost, and is queued again
	Processing Status = "PROCESSING" // entries are being turned into emails
	Sending    Status = "SENDING"    // all entries are emails, not all are final
	Paused     Status = "PAUSED"
	Completed  Status = "COMPLETED"
	Cancelled  Status = "CANCELLED"
	Failed     Status = "FAILED" // its job failed three times
)

// mailingQueue is the queue of the emails of mailings, and of the lanes of mailings.
const mailingQueue = email.QueueLow

// Mailing is a mailing with its counts. Accepted, Invalid and Duplicates are as of the upload, and
// Total is their sum. A loop counts InvalidLater to Unknown from the entries, as of CountedAt.
type Mailing struct {
	ID           uuid.UUID      `db:"id"`
	CompanyID    uuid.UUID      `db:"company_id"`
	RequestID    string         `db:"request_id"`
	Filename     string         `db:"filename"`
	StorageURL   string         `db:"storage_url"` // internal; not shown to the tenant
	DryRun       bool           `db:"dry_run"`
	Subject      string         `db:"subject"`  // the template
	Template     *string        `db:"template"` // name@version or name/locale@version of a stored template; nil = none
	Fields       pq.StringArray `db:"fields"`
	EmailColumn  string         `db:"email_column"` // "email" of mailings of earlier releases
	Sender       string         `db:"sender"`
	ReplyTo      *string        `db:"reply_to"`
	Tags         pq.StringArray `db:"tags"`
	Delivery     email.Delivery `db:"delivery"`
	SendAt       *time.Time     `db:"send_at"`
	Status       Status         `db:"status"`
	Generation   int            `db:"generation"` // 0 = never started
	Attempts     int            `db:"attempts"`   // consecutive failed attempts of its job
	LastAttempt  *time.Time     `db:"last_attempt"`
	ErrorMessage *string        `db:"error_message"`
	FirstEntry   uuid.NullUUID  `db:"first_entry"`
	LastEntry    uuid.NullUUID  `db:"last_entry"`
	ExpandedAt   *time.Time     `db:"expanded_at"`
	WaitingFor   *string        `db:"waiting_for"` // see WaitsFor
	WaitingUntil *time.Time     `db:"waiting_until"`
	Settling     *string        `db:"settling"`    // the EntryAction in progress: "cancel" or "retry-failed"
	Attachments  int            `db:"attachments"` // their number at upload; see file.Store.AttachmentsOf

	Total      int `db:"total_lines"`
	Processed  int `db:"processed_lines"` // entries that became emails or were found invalid
	Accepted   int `db:"accepted"`
	Invalid    int `db:"invalid"`
	Duplicates int `db:"duplicates"`
	// EmptyFields is how many accepted lines leave a column empty that a template uses without a
	// default.
	EmptyFields int `db:"empty_fields"`
	// InvalidByReason is Invalid as a JSON object of counts by error code.
	InvalidByReason json.RawMessage `db:"invalid_by_reason"`

	InvalidLater int `db:"invalid_later"` // found invalid by the expander
	Queued       int `db:"queued"`
	Sent         int `db:"sent"`
	Failed       int `db:"failed"`
	Suppressed   int `db:"suppressed"`
	Expired      int `db:"expired"`
	Cancelled    int `db:"cancelled"`
	Unknown      int `db:"unknown"` // FAILED, and the provider may have accepted it
	// Emails by delivery state: each counts once, by its current state. Unsubscribed counts the
	// recipients who used the mailing's unsubscribe link.
	Delivered    int        `db:"delivered"`
	Bounced      int        `db:"bounced"`
	Complained   int        `db:"complained"`
	Unsubscribed int        `db:"unsubscribed"`
	Rate         float64    `db:"rate"` // entries per second that became final, over about the last 10 s
	CountedAt    *time.Time `db:"counted_at"`

	CreatedAt   time.Time  `db:"created_at"`
	UpdatedAt   time.Time  `db:"updated_at"`
	CompletedAt *time.Time `db:"completed_at"`

	// When data older than its retention was deleted; nil = it was not.
	FileDeletedAt    *time.Time `db:"file_deleted_at"`
	EntriesDeletedAt *time.Time `db:"entries_deleted_at"` // the counts stay

	// CompanyPausedAt is when the reputation guard paused the mailings of the company; nil = it has not.
	CompanyPausedAt *time.Time `db:"company_paused_at"`
}

// Ended returns how many of the accepted entries are final.
func (m Mailing) Ended() int {
	return m.InvalidLater + m.Sent + m.Failed + m.Suppressed + m.Expired + m.Cancelled + m.Unknown
}

// longestRemaining is the longest time that is an estimate and not the sign of a mailing that makes no progress.
const longestRemaining = 366 * 24 * time.Hour

// Remaining returns how long the remaining entries take at the current rate; 0 = unknown, or done.
func (m Mailing) Remaining() time.Duration {
	left := m.Accepted - m.Ended()
	if m.Rate <= 0 || left <= 0 || m.Status == Cancelled {
		return 0
	}
	seconds := float64(left) / m.Rate
	if seconds > longestRemaining.Seconds() { // the conversion could overflow
		return 0
	}
	return time.Duration(seconds * float64(time.Second))
}

const mailingColumns = `
id, company_id, request_id, filename, storage_url, dry_run, coalesce(subject_written, subject) AS subject, template, fields, coalesce(email_column, 'email') AS email_column, sender, reply_to, tags, delivery, send_at,
status, generation, attempts, last_attempt, error_message, first_entry, last_entry, expanded_at, waiting_for, waiting_until, settling,
total_lines, processed_lines, accepted, invalid, duplicates, empty_fields, invalid_by_reason,
invalid_later, queued, sent, failed, suppressed, expired, cancelled, unknown, delivered, bounced, complained, unsubscribed, rate, counted_at,
created_at, updated_at, completed_at, file_deleted_at, entries_deleted_at, coalesce(attachments, 0) AS attachments,
(SELECT c.mailings_paused_at FROM companies c WHERE c.id = company_id) AS company_paused_at`

// findMailingSQL reads one row, by primary key or mailings_company, and locks nothing.
const findMailingSQL = `SELECT ` + mailingColumns + ` FROM mailings WHERE id = $1 AND company_id = $2`

// FindMailing returns one mailing of the company, or pg.ErrNotFound.
func (s *Store) FindMailing(ctx context.Context, company, id uuid.UUID) (Mailing, error) {
	var m Mailing
	if err := s.db.GetContext(ctx, &m, findMailingSQL, id, company); err != nil {
		return Mailing{}, fmt.Errorf("find mailing: %w", pg.Translate(err))
	}
	return m, nil
}

// listMailingsSQL scans mailings_company from the cursor down and locks nothing.
const listMailingsSQL = `
SELECT ` + mailingColumns + ` FROM mailings WHERE company_id = $1 AND id < $2 ORDER BY id DESC LIMIT $3`

// ListMailings returns the company's mailings, newest first: at most limit of those
// with an id smaller than before (uuid.Nil = from the newest on).
func (s *Store) ListMailings(ctx context.Context, company, before uuid.UUID, limit int) ([]Mailing, error) {
	if before == uuid.Nil {
		before = uuid.Max
	}
	found := []Mailing{}
	if err := s.db.SelectContext(ctx, &found, listMailingsSQL, company, before, max(limit, 1)); err != nil {
		return nil, fmt.Errorf("list mailings: %w", pg.Translate(err))
	}
	return found, nil
}

// mailingExistsSQL reads one row by primary key and locks nothing.
const mailingExistsSQL = `SELECT EXISTS (SELECT FROM mailings WHERE id = $1) AS found, ` + pg.ConfirmedColumn + ` IS NOT NULL AS confirmed`

// MailingExists reports whether a mailing was committed, for a caller whose IngestMailing returned
// pg.ErrUnknownOutcome. outbox.Store.Exists does the same for an email.
func (s *Store) MailingExists(ctx context.Context, id uuid.UUID) (bool, error) {
	found, err := s.db.ExistsConfirmed(ctx, mailingExistsSQL, id)
	if err != nil {
		return false, fmt.Errorf("look up mailing: %w", err)
	}
	return found, nil
}
