package store

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/lib/pq"

	"email-gateway/shared/email"
)

// Email is what there is to tell about an email: from its outbox row while there
// is one, and from its log.
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
	// What it is about; all three are nil where nobody named that.
	AggregateType *string `db:"aggregate_type"`
	AggregateID   *string `db:"aggregate_id"`
	EventType     *string `db:"event_type"`
}

// emailColumns merges an outbox row o with its log l; either may be missing. What the
// email is about, a, is found by outbox_aggregates_outbox: it outlives the outbox row.
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
coalesce(o.created_at, l.created_at) AS created_at, coalesce(o.expires_at, l.expires_at) AS expires_at, o.next_at,
l.sent_at, l.failed_at, a.aggregate_type, a.aggregate_id, a.event_type`

const joinAggregate = `LEFT JOIN outbox_aggregates a ON a.outbox_id = coalesce(o.id, l.outbox_id)`

// findEmailSQL reads both tables by primary key and locks nothing.
const findEmailSQL = `
SELECT ` + emailColumns + `
FROM (SELECT * FROM email_outbox WHERE id = $1 AND company_id = $2 AND target = 'email:send') o
FULL JOIN (SELECT * FROM email_logs WHERE outbox_id = $1 AND company_id = $2) l ON l.outbox_id = o.id
` + joinAggregate

// FindEmail returns one email of the company, or ErrNotFound.
func (s *Store) FindEmail(ctx context.Context, company, id uuid.UUID) (Email, error) {
	var e Email
	if err := s.db.GetContext(ctx, &e, findEmailSQL, id, company); err != nil {
		return Email{}, fmt.Errorf("find email: %w", translate(err))
	}
	return e, nil
}

// TimelineEvent is one row of an email's timeline.
type TimelineEvent struct {
	Seq       int             `db:"seq"`
	Type      email.EventType `db:"type"`
	Metadata  json.RawMessage `db:"metadata"`
	CreatedAt time.Time       `db:"created_at"`
}

// timelineSQL reads by the leading column of the primary key, in its order.
const timelineSQL = `SELECT seq, type, metadata, created_at FROM email_events WHERE email_log_id = $1 ORDER BY seq`

// Timeline lists an email's events in order. The caller has checked whose it is.
func (s *Store) Timeline(ctx context.Context, id uuid.UUID) ([]TimelineEvent, error) {
	events := []TimelineEvent{}
	if err := s.db.SelectContext(ctx, &events, timelineSQL, id); err != nil {
		return nil, fmt.Errorf("read timeline: %w", translate(err))
	}
	return events, nil
}

// EmailFilter chooses emails of one company, newest first. Zero fields do not filter.
type EmailFilter struct {
	Before     uuid.UUID // only emails with a smaller id: the cursor
	From       uuid.UUID // the smallest id of the date range (ids hold their time)
	Until      uuid.UUID // the first id after it
	Status     email.Status
	Tag        string
	Recipient  string
	ExternalID string
	RequestID  string
	// AboutType and AboutID choose the emails about one thing, EventType one kind of them.
	AboutType, AboutID, EventType string
	Limit                         int
}

// EmailPage is a page of a list. Next continues it; uuid.Nil means the end. A page
// can be short, or empty, and still have a Next: see listScan.
type EmailPage struct {
	Emails []Email
	Next   uuid.UUID
}

// listScan is how many emails one request of a list may look at. Status and tag
// are in no index (an index on either would cost every send more than it saves), so
// a rare one is looked for in steps of this size, each some 20 ms.
const listScan = 5000

// listIDsSQL walks email_outbox_company and email_logs_company from the cursor down
// and merges them by id, so that an email that no worker has received yet is in the
// list. A list without From probes every partition of email_logs once. No locks.
const listIDsSQL = `
SELECT id FROM (
    (SELECT outbox_id AS id FROM email_logs WHERE company_id = $1 AND outbox_id < $2 AND outbox_id >= $3 ORDER BY outbox_id DESC LIMIT $4)
    UNION
    (SELECT id FROM email_outbox WHERE company_id = $1 AND id < $2 AND id >= $3 AND target = 'email:send' ORDER BY id DESC LIMIT $4)
) merged ORDER BY id DESC LIMIT $4`

// stepIDsSQL walks the same indexes over $5 emails and returns the newest $6 of them that
// have the tag and the status, and where the walk stopped (reached), unless it came to the
// end. The outbox row has the status, and the log where that row is purged; the log has the
// tags, but of a PENDING or ENQUEUED email, which may have no log, the row has them. No locks.
const stepIDsSQL = `
WITH walked AS MATERIALIZED (
    SELECT id, bool_or(tagged) AS tagged, coalesce(max(outbox_status), max(log_status)) AS status FROM (
        (SELECT outbox_id AS id, $4 = '' OR $4 = ANY (tags) AS tagged, NULL AS outbox_status, status AS log_status FROM email_logs
         WHERE company_id = $1 AND outbox_id < $2 AND outbox_id >= $3 ORDER BY outbox_id DESC LIMIT $5)
        UNION ALL
        (SELECT id, $4 = '' OR CASE WHEN status IN ('PENDING', 'ENQUEUED') THEN coalesce(payload -> 'tags' ? $4, false) ELSE false END, status, NULL
         FROM email_outbox
         WHERE company_id = $1 AND id < $2 AND id >= $3 AND target = 'email:send' ORDER BY id DESC LIMIT $5)
    ) both_tables GROUP BY id ORDER BY id DESC LIMIT $5
)
(SELECT id, false AS reached FROM walked WHERE tagged AND ($7 = '' OR status = $7) ORDER BY id DESC LIMIT $6)
UNION ALL
(SELECT id, true FROM walked ORDER BY id DESC OFFSET $5 - 1)`

// searchIDsSQL finds by email_logs_recipient, email_logs_external or email_logs_request,
// from the cursor down, and adds what is due and has no log yet: unreceivedSQL. No locks.
const searchIDsSQL = `
SELECT id FROM (
    (SELECT outbox_id AS id FROM email_logs
     WHERE company_id = $1 AND outbox_id < $2 AND outbox_id >= $3
       AND ($4 = '' OR lower(recipient) = lower($4)) AND ($5 = '' OR external_id = $5) AND ($6 = '' OR request_id = $6)
     ORDER BY outbox_id DESC LIMIT $7)
    UNION
    (SELECT id FROM (` + unreceivedSQL + `) unreceived
     WHERE id < $2 AND id >= $3
       AND ($4 = '' OR lower(payload ->> 'to') = lower($4)) AND ($5 = '' OR payload #>> '{recipient,externalId}' = $5) AND ($6 = '' OR request_id = $6)
     ORDER BY id DESC LIMIT $7)
) found ORDER BY id DESC LIMIT $7`

// unreceivedSQL are the company's emails that a worker may not have received yet. Only they
// have no log: a scheduled email gets its log when it is accepted. So they are due, or will
// be within a minute where something has put them off for a moment.
//
// Those that wait for the dispatcher are read along email_outbox_lane_claim, of each lane
// the newest, at most $8 in all: with a longer backlog an older email is found once a worker
// has received it. The lanes are those of single emails, of the mailings at work (QUEUED is
// also one between two parts of its expansion), of the FAILED ones, whose emails go on, and
// of those being settled. Those on a queue are read along email_outbox_open: those of all
// companies, since the queues' windows keep them few, and without the LIMIT the planner may
// read all of the company's emails.
const unreceivedSQL = `
    (SELECT o.id, o.payload, o.request_id
     FROM (SELECT id FROM dispatch_lanes
           WHERE company_id = $1 AND queue IN ('email:send:high', 'email:send', 'email:send:low') AND mailing_id IS NULL
           UNION ALL
           SELECT l.id FROM mailings m
           JOIN dispatch_lanes l ON l.company_id = m.company_id AND l.queue = 'email:send:low' AND l.mailing_id = m.id
           WHERE m.company_id = $1 AND (m.status IN ('QUEUED', 'PENDING', 'PROCESSING', 'SENDING', 'PAUSED', 'FAILED') OR m.settling IS NOT NULL)) lane
     CROSS JOIN LATERAL (
         SELECT id, payload, request_id FROM email_outbox
         WHERE lane_id = lane.id AND status IN ('PENDING', 'RETRY_SCHEDULED') AND next_at <= now() + interval '1 minute'
         ORDER BY next_at DESC, id DESC LIMIT $8) o
     LIMIT $8)
    UNION ALL
    (SELECT id, payload, request_id
     FROM (SELECT id, company_id, payload, request_id FROM email_outbox
           WHERE status = 'ENQUEUED' AND target = 'email:send' ORDER BY status, expires_at LIMIT 20000) enqueued
     WHERE company_id = $1)`

// aboutIDsSQL reads what there is about one thing, which is little, by
// outbox_aggregates_pkey.
const aboutIDsSQL = `
SELECT outbox_id FROM outbox_aggregates
WHERE company_id = $1 AND aggregate_type = $4 AND aggregate_id = $5 AND ($6 = '' OR event_type = $6)
  AND outbox_id < $2 AND outbox_id >= $3
ORDER BY outbox_id DESC LIMIT $7`

// pageRowsSQL reads both tables by primary key, and of the logs' partitions those that
// the ids, from $5 to $6, may be in.
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
ORDER BY page.id DESC LIMIT $4`

// ListEmails returns a page of the company's emails, newest first.
func (s *Store) ListEmails(ctx context.Context, company uuid.UUID, f EmailFilter) (EmailPage, error) {
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
		return EmailPage{}, fmt.Errorf("list emails: %w", translate(err))
	}
	page := EmailPage{Emails: []Email{}, Next: next}
	if err := s.db.SelectContext(ctx, &page.Emails, pageRowsSQL, pageRowsParameters(ids, f)...); err != nil {
		return EmailPage{}, fmt.Errorf("list emails: %w", translate(err))
	}
	if len(page.Emails) == limit {
		page.Next = page.Emails[limit-1].ID
	}
	return page, nil
}

func pageRowsParameters(ids []uuid.UUID, f EmailFilter) []any {
	first, last := idRange(ids, func(id *uuid.UUID) uuid.UUID { return *id })
	return []any{uuidArray(ids), string(f.Status), f.Tag, max(f.Limit, 1), first, last, f.Recipient, f.ExternalID, f.RequestID}
}

// pageIDs are emails that may be on the page, by the filter that leaves the fewest, and where
// the next page begins if this one is not full; uuid.Nil means that there is none.
func (s *Store) pageIDs(ctx context.Context, company, before uuid.UUID, f EmailFilter, limit int) (ids []uuid.UUID, next uuid.UUID, err error) {
	scan := limit // pageRowsSQL filters what it is given by everything
	if f.Status != "" || f.Tag != "" || f.AboutType != "" {
		scan = max(listScan, limit)
	}
	switch {
	case f.AboutType != "":
		err = s.db.SelectContext(ctx, &ids, aboutIDsSQL, company, before, f.From, f.AboutType, f.AboutID, f.EventType, scan)
	case f.Recipient != "" || f.ExternalID != "" || f.RequestID != "":
		err = s.db.SelectContext(ctx, &ids, searchIDsSQL, company, before, f.From, f.Recipient, f.ExternalID, f.RequestID, scan, listScan)
	case f.Status == email.Pending || f.Status == email.RetryScheduled:
		return s.waitingIDs(ctx, company, before, f, limit)
	case f.Tag != "" || f.Status != "":
		return s.stepIDs(ctx, company, before, f, limit)
	default:
		err = s.db.SelectContext(ctx, &ids, listIDsSQL, company, before, f.From, scan)
	}
	if len(ids) == scan {
		next = ids[scan-1]
	}
	return ids, next, err
}

// stepIDs is one step of a search by tag or status alone.
func (s *Store) stepIDs(ctx context.Context, company, before uuid.UUID, f EmailFilter, limit int) (ids []uuid.UUID, next uuid.UUID, err error) {
	ids, next, err = s.selectStep(ctx, stepIDsSQL, company, before, f.From, f.Tag, max(listScan, limit), limit, string(f.Status))
	if err != nil {
		return nil, uuid.Nil, err
	}
	if len(ids) == limit { // more may match before the end of the step
		next = ids[limit-1]
	}
	return ids, next, nil
}

// selectStep returns the emails that a statement found and, if its scan reached its bound,
// the email where that was.
func (s *Store) selectStep(ctx context.Context, statement string, parameters ...any) (ids []uuid.UUID, reached uuid.UUID, err error) {
	var found []struct {
		ID      uuid.UUID `db:"id"`
		Reached bool      `db:"reached"`
	}
	if err := s.db.SelectContext(ctx, &found, statement, parameters...); err != nil {
		return nil, uuid.Nil, err
	}
	for _, row := range found {
		if row.Reached {
			reached = row.ID
		} else {
			ids = append(ids, row.ID)
		}
	}
	return ids, reached, nil
}
