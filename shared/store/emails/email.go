package emails

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"

	"email-gateway/shared/email"
	"email-gateway/shared/store/internal/pg"
)

// Email is the stored data of an email: from its outbox row while that exists, and from its log.
type Email struct {
	ID                uuid.UUID      `db:"id"`
	CompanyID         uuid.UUID      `db:"company_id"`
	RequestID         string         `db:"request_id"`
	Status            email.Status   `db:"status"`
	Recipient         string         `db:"recipient"`
	RecipientID       *uuid.UUID     `db:"recipient_id"`
	ExternalID        *string        `db:"external_id"`
	Subject           string         `db:"subject"`
	Tags              pq.StringArray `db:"tags"`
	Attempts          int            `db:"attempts"`
	Throttles         int            `db:"throttles"`
	PossibleDuplicate bool           `db:"possible_duplicate"`
	OutcomeUnknown    bool           `db:"outcome_unknown"`
	SESMessageID      *string        `db:"ses_message_id"`
	ErrorCode         *string        `db:"error_code"`
	ErrorReason       *string        `db:"error_reason"`
	DurationMS        *int           `db:"duration_ms"`
	CreatedAt         time.Time      `db:"created_at"`
	ExpiresAt         time.Time      `db:"expires_at"`
	NextAt            *time.Time     `db:"next_at"` // nil once the outbox row is purged
	SentAt            *time.Time     `db:"sent_at"`
	FailedAt          *time.Time     `db:"failed_at"`
	// Delivery is nil until the provider has accepted the email. DeliveryAt is by the provider's clock; it is nil if
	// the feedback is older than these columns. Addresses in DeliveryReason are masked.
	Delivery       *email.DeliveryState `db:"delivery"`
	DeliveryAt     *time.Time           `db:"delivery_at"`
	DeliveryReason *string              `db:"delivery_reason"`
	// ScheduledFor is the time in the log. The method SendAt also considers later moves.
	ScheduledFor *time.Time `db:"send_at"`
	// The aggregate: AggregateType, AggregateID and EventType are nil for an email without one.
	AggregateType *string `db:"aggregate_type"`
	AggregateID   *string `db:"aggregate_id"`
	EventType     *string `db:"event_type"`
	// Sender to DeliveryPolicy are only in the outbox row, and empty once it is purged.
	Sender    *string        `db:"sender"`
	CC        pq.StringArray `db:"cc"`
	BCC       pq.StringArray `db:"bcc"`
	ReplyTo   *string        `db:"reply_to"`
	MailingID *uuid.UUID     `db:"mailing_id"` // the mailing that the email belongs to
	Priority  *int           `db:"priority"`
	// DeliveryPolicy says what follows if it is unknown whether the provider has accepted the email.
	DeliveryPolicy *email.Delivery `db:"delivery_policy"`
	// Template is name@version or name/locale@version; nil = none.
	Template *string `db:"template"`
}

// NoDeadline reports whether a deadline is outbox.NoDeadlineSQL, that of an email of a mailing before its first try. A
// real one is at most 13 months ahead: the longest EMAIL_TTL after the latest time for which an email can be scheduled.
func NoDeadline(expiresAt, now time.Time) bool { return expiresAt.Sub(now) > 2*365*24*time.Hour }

// emailColumns merges an outbox row o with its log l; either may be missing. The aggregate a is found by
// outbox_aggregates_outbox; it outlives the outbox row.
const emailColumns = `
coalesce(o.id, l.outbox_id) AS id, coalesce(o.company_id, l.company_id) AS company_id, coalesce(o.request_id, l.request_id) AS request_id,
coalesce(o.status, l.status) AS status, coalesce(l.recipient, o.payload ->> 'to') AS recipient,
coalesce(l.recipient_id, (o.payload #>> '{recipient,recipientId}')::uuid) AS recipient_id,
coalesce(l.external_id, o.payload #>> '{recipient,externalId}') AS external_id,
coalesce(l.subject, o.payload ->> 'subject') AS subject,
coalesce(l.tags, ARRAY(SELECT jsonb_array_elements_text(coalesce(o.payload -> 'tags', '[]')))) AS tags,
coalesce(o.attempts, l.attempts) AS attempts, coalesce(o.throttles, l.throttles) AS throttles,
coalesce(o.possible_duplicate, l.possible_duplicate) AS possible_duplicate, coalesce(o.outcome_unknown, false) AS outcome_unknown,
l.ses_message_id, l.error_code, l.error_reason, l.duration_ms,
coalesce(o.created_at, l.created_at) AS created_at, coalesce(o.expires_at, l.expires_at) AS expires_at, o.next_at, l.send_at,
l.sent_at, l.failed_at, ` + DeliveryColumnsSQL + `, a.aggregate_type, a.aggregate_id, a.event_type, coalesce(o.template, l.template) AS template,
o.sender, ARRAY(SELECT jsonb_array_elements_text(coalesce(o.payload -> 'cc', '[]'))) AS cc,
ARRAY(SELECT jsonb_array_elements_text(coalesce(o.payload -> 'bcc', '[]'))) AS bcc, o.payload ->> 'replyTo' AS reply_to,
substring(o.payload ->> 'htmlRef' FROM '^mailing:([0-9a-f-]{36})$')::uuid AS mailing_id,
o.priority, o.delivery AS delivery_policy`

const joinAggregate = `LEFT JOIN outbox_aggregates a ON a.outbox_id = coalesce(o.id, l.outbox_id)`

// findEmailSQL reads both tables by primary key and locks nothing.
const findEmailSQL = `
SELECT ` + emailColumns + `
FROM (SELECT * FROM email_outbox WHERE id = $1 AND company_id = $2 AND target = 'email:send') o
FULL JOIN (SELECT * FROM email_logs WHERE outbox_id = $1 AND company_id = $2) l ON l.outbox_id = o.id
` + joinAggregate

// FindEmail returns one email of the company, or pg.ErrNotFound.
func (s *Store) FindEmail(ctx context.Context, company, id uuid.UUID) (Email, error) {
	return findEmail(ctx, s.db, company, id)
}

// findEmail is FindEmail on connections or in a transaction.
func findEmail(ctx context.Context, db sqlx.QueryerContext, company, id uuid.UUID) (Email, error) {
	var e Email
	if err := sqlx.GetContext(ctx, db, &e, findEmailSQL, id, company); err != nil {
		return Email{}, fmt.Errorf("find email: %w", pg.Translate(err))
	}
	return e, nil
}

// SendAt returns the time that the email is scheduled for: that of its last move, or else the stored one. It returns
// nil if the email was not scheduled, or if the previous release accepted it, so that the time is unknown. Moves made
// by that release are only in the timeline.
func (e Email) SendAt(timeline []TimelineEvent) *time.Time {
	for _, event := range slices.Backward(timeline) {
		if event.Type != email.EventRescheduled {
			continue
		}
		var move struct {
			To *time.Time `json:"newSendAt"`
		}
		if json.Unmarshal(event.Metadata, &move) == nil && move.To != nil {
			return move.To
		}
	}
	return e.ScheduledFor
}

// TimelineEvent is one row of an email's timeline.
type TimelineEvent struct {
	Seq       int             `db:"seq"`
	Type      email.EventType `db:"type"`
	Metadata  json.RawMessage `db:"metadata"`
	CreatedAt time.Time       `db:"created_at"`
}

// MaxTimeline limits the events of a timeline that are read. An email has four for each try, and during a long outage of the
// provider one email may be tried thousands of times, each time as a probe.
const MaxTimeline = 1000

// timelineSQL reads by the leading column of the primary key, backwards in the order of that key.
const timelineSQL = `
SELECT seq, type, metadata, created_at
FROM (SELECT seq, type, metadata, created_at FROM email_events WHERE email_log_id = $1 ORDER BY seq DESC LIMIT $2) newest
ORDER BY seq`

// Timeline lists an email's newest events, at most MaxTimeline, in order. The caller must have checked that the email belongs
// to its company.
func (s *Store) Timeline(ctx context.Context, id uuid.UUID) ([]TimelineEvent, error) {
	return readTimeline(ctx, s.db, id)
}

// readTimeline is Timeline on connections or in a transaction.
func readTimeline(ctx context.Context, db sqlx.QueryerContext, id uuid.UUID) ([]TimelineEvent, error) {
	events := []TimelineEvent{}
	if err := sqlx.SelectContext(ctx, db, &events, timelineSQL, id, MaxTimeline); err != nil {
		return nil, fmt.Errorf("read timeline: %w", pg.Translate(err))
	}
	return events, nil
}

// Filter chooses emails of one company, newest first. Zero fields do not filter.
type Filter struct {
	Before     uuid.UUID // only emails with a smaller id: the cursor
	From       uuid.UUID // the smallest id of the date range (ids hold their time)
	Until      uuid.UUID // the first id after the date range
	Status     email.Status
	Tag        string
	Recipient  string
	ExternalID string
	RequestID  string
	// AboutType and AboutID select the emails about one aggregate, EventType those of one event type.
	AboutType, AboutID, EventType string
	Delivery                      email.DeliveryState
	UpdatedAfter                  time.Time // only emails accepted, or with an event, at this time or later
	Limit                         int
}

// Page is a page of a list. Next is the cursor of the next page; uuid.Nil means the end. A page may be short or empty
// and still have a Next: see ListScan.
type Page struct {
	Emails []Email
	Next   uuid.UUID
}

// pageRowsSQL reads both tables by primary key. Of the partitions of email_logs it reads only those that the ids from
// $5 to $6 may be in. It finds the newest event by email_events_pkey.
const pageRowsSQL = `
SELECT ` + emailColumns + `
FROM unnest($1::uuid[]) AS page(id)
LEFT JOIN email_outbox o ON o.id = page.id
LEFT JOIN email_logs l ON l.outbox_id = page.id AND l.outbox_id BETWEEN $5 AND $6
` + joinAggregate + `
WHERE coalesce(o.id, l.outbox_id) IS NOT NULL AND ($2 = '' OR coalesce(o.status, l.status) = $2)
  AND ($3 = '' OR $3 = ANY (coalesce(l.tags, ARRAY(SELECT jsonb_array_elements_text(coalesce(o.payload -> 'tags', '[]'))))))
  AND ($7 = '' OR lower(coalesce(l.recipient, o.payload ->> 'to')) = lower($7))
  AND ($8 = '' OR coalesce(l.external_id, o.payload #>> '{recipient,externalId}') = $8)
  AND ($9 = '' OR coalesce(o.request_id, l.request_id) = $9)
  AND ($10 = '' OR (` + deliveryState + `) = $10)
  AND ($11::timestamptz IS NULL OR greatest(coalesce(o.created_at, l.created_at),
       (SELECT e.created_at FROM email_events e WHERE e.email_log_id = l.outbox_id AND e.seq = l.event_seq)) >= $11)
ORDER BY page.id DESC LIMIT $4`

// ListEmails returns a page of the company's emails, newest first.
func (s *Store) ListEmails(ctx context.Context, company uuid.UUID, f Filter) (Page, error) {
	before := f.Before
	if before == uuid.Nil {
		before = uuid.Max
	}
	if f.Until != uuid.Nil && bytes.Compare(f.Until[:], before[:]) < 0 {
		before = f.Until
	}
	limit := max(f.Limit, 1)
	ids, next, err := s.pageIDs(ctx, company, before, f, limit)
	if err != nil {
		return Page{}, fmt.Errorf("list emails: %w", pg.Translate(err))
	}
	page := Page{Emails: []Email{}, Next: next}
	if err := s.db.SelectContext(ctx, &page.Emails, pageRowsSQL, pageRowsParameters(ids, f)...); err != nil {
		return Page{}, fmt.Errorf("list emails: %w", pg.Translate(err))
	}
	if len(page.Emails) == limit {
		page.Next = page.Emails[limit-1].ID
	}
	return page, nil
}

func pageRowsParameters(ids []uuid.UUID, f Filter) []any {
	first, last := pg.IDRange(ids, func(id *uuid.UUID) uuid.UUID { return *id })
	return []any{
		pg.UUIDArray(ids), string(f.Status), f.Tag, max(f.Limit, 1), first, last, f.Recipient, f.ExternalID, f.RequestID,
		string(f.Delivery), pg.OptionalTime(f.UpdatedAfter),
	}
}
