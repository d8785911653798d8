package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/lib/pq"

	"email-gateway/shared/email"
	"email-gateway/shared/store/internal/pg"
)

// LoadedEmail is an outbox row as a worker needs it to decide about an attempt.
type LoadedEmail struct {
	ID             uuid.UUID      `db:"id"`
	CompanyID      uuid.UUID      `db:"company_id"`
	InstallationID uuid.UUID      `db:"installation_id"`
	RequestID      string         `db:"request_id"`
	Status         email.Status   `db:"status"`
	Attempts       int            `db:"attempts"`
	Throttles      int            `db:"throttles"`
	Due            bool           `db:"due"` // next_at has come, give or take a second
	Expired        bool           `db:"expired"`
	LaneOpen       bool           `db:"lane_open"`      // neither lane nor company is paused
	BreakerClosed  bool           `db:"breaker_closed"` // the circuit breaker lets it pass
	Probe          bool           `db:"probe"`          // it is the one email that passes an open circuit breaker
	ExpiresAt      time.Time      `db:"expires_at"`
	Payload        []byte         `db:"payload"`
	Sender         string         `db:"sender"`
	HTML           string         `db:"html"` // "", like Text, if LargeBody is not 0
	Text           string         `db:"text_body"`
	LargeBody      int64          `db:"large_body"` // bytes of html and text that ReadBody reads, if more than SmallBody; else 0
	AutoText       bool           `db:"auto_text"`  // without Text, a text part is made from HTML
	HTMLSHA256     []byte         `db:"html_sha256"`
	CheckerVersion int            `db:"checker_version"`
	Delivery       email.Delivery `db:"delivery"`
	Attachments    int            `db:"attachments"` // how many it has of its own
	// RecipientKnown reports, for an email with a recipientId, whether the company
	// has this recipient, not deleted and with the address of the email, or has a
	// pending import of it.
	RecipientKnown bool `db:"recipient_known"`
	// Suppressed is why the company must not write to the email's To; "" if it may.
	Suppressed string `db:"suppressed"`
	// SuppressedCopies are the suppressed addresses among cc and bcc, which must be left out.
	SuppressedCopies pq.StringArray `db:"suppressed_copies"`
	// HasAggregate: the email has an aggregate, so a program may be changing it.
	HasAggregate bool `db:"about"`

	// MailingID is set for the email of a mailing: it has no body of its own, it is
	// made from the mailing's templates with these values.
	MailingID   uuid.NullUUID  `db:"mailing_id"`
	Token       string         `db:"token"`
	Fields      pq.StringArray `db:"fields"`       // empty if LargeFields is not 0
	LargeFields int64          `db:"large_fields"` // bytes of the fields that ReadFields reads, if more than SmallBody; else 0
}

// Loader reads emails, many at a time.
type Loader struct {
	group *pg.Group[uuid.UUID, *LoadedEmail]
	store *Store
}

// loadSize makes a group load at most 64 emails, whose bodies are in memory twice while they are read: groups of 256
// goroutines have 12 to 50.
const loadSize = pg.GroupBytes / 64

// NewLoader returns a Loader on the store's connections.
func (s *Store) NewLoader() *Loader { return s.newLoader(s.loadEmails) }

func (s *Store) newLoader(load func(context.Context, []uuid.UUID) ([]*LoadedEmail, error)) *Loader {
	return &Loader{store: s, group: pg.NewGroup(uuid.UUID.String, func(uuid.UUID) int { return loadSize }, load).SetWorkers(s.db.Workers())}
}

// For sets how many goroutines load emails from now on, see pg.Options.Workers.
func (l *Loader) For(workers int) { l.group.SetWorkers(workers) }

// Load reads one email; pg.ErrNotFound if there is none.
func (l *Loader) Load(ctx context.Context, id uuid.UUID) (*LoadedEmail, error) {
	found, err := l.group.Do(ctx, id)
	if err == nil && found == nil {
		err = pg.ErrNotFound
	}
	return found, err
}

// sentIDSQL reads email_logs by primary key and locks nothing.
const sentIDSQL = `SELECT coalesce(max(ses_message_id), '') FROM email_logs WHERE outbox_id = $1`

// SESMessageID is the provider's id of an email, "" if it is not known.
func (l *Loader) SESMessageID(ctx context.Context, id uuid.UUID) (string, error) {
	var found string
	if err := l.store.db.GetContext(ctx, &found, sentIDSQL, id); err != nil {
		return "", fmt.Errorf("read the id of a sent email: %w", pg.Translate(err))
	}
	return found, nil
}

// SmallBody is how many bytes are loaded with the email, of html and text together and of the fields together.
const SmallBody = 64 << 10 // as in load.sql

// bodySQL reads email_outbox by primary key and locks nothing.
const bodySQL = `SELECT coalesce(html, '') AS html, coalesce(text_body, '') AS text_body FROM email_outbox WHERE id = $1`

// ReadBody reads html and text of one email, however large they are; pg.ErrNotFound if there is none.
func (l *Loader) ReadBody(ctx context.Context, id uuid.UUID) (html, text string, err error) {
	var body struct {
		HTML string `db:"html"`
		Text string `db:"text_body"`
	}
	if err := l.store.db.GetContext(ctx, &body, bodySQL, id); err != nil {
		return "", "", fmt.Errorf("read the body of an email: %w", pg.Translate(err))
	}
	return body.HTML, body.Text, nil
}

// fieldsSQL reads mailing_entries by primary key and locks nothing.
const fieldsSQL = `SELECT fields FROM mailing_entries WHERE id = $1`

// ReadFields reads the fields of one email of a mailing, however large they are; pg.ErrNotFound if there is no such entry.
func (l *Loader) ReadFields(ctx context.Context, id uuid.UUID) ([]string, error) {
	var fields pq.StringArray
	if err := l.store.db.GetContext(ctx, &fields, fieldsSQL, id); err != nil {
		return nil, fmt.Errorf("read the fields of an email: %w", pg.Translate(err))
	}
	return fields, nil
}

// Close waits for the groups in flight.
func (l *Loader) Close() { l.group.Wait() }

// loadParameters are the parameters of load.sql: how many emails, and their ids.
var loadParameters = pg.Parameters[int, uuid.UUID]{
	Scalars: []pg.Scalar[int]{pg.One("count", "bigint", func(count int) any { return count })},
	Columns: []pg.Column[uuid.UUID]{pg.Each("id", "uuid", pg.UUIDs, func(id *uuid.UUID) uuid.UUID { return *id })},
}

// loadEmails reads each email into memory of its own: a slow call keeps the body of its own email only.
func (s *Store) loadEmails(ctx context.Context, ids []uuid.UUID) ([]*LoadedEmail, error) {
	var rows []*LoadedEmail
	if err := s.loadEmail.Select(ctx, &rows, loadParameters.Arguments(len(ids), ids)...); err != nil {
		return nil, fmt.Errorf("load emails: %w", pg.Translate(err))
	}
	byID := make(map[uuid.UUID]*LoadedEmail, len(rows))
	for _, row := range rows {
		byID[row.ID] = row
	}
	found := make([]*LoadedEmail, len(ids))
	for i, id := range ids {
		found[i] = byID[id]
	}
	return found, nil
}
