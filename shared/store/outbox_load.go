package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/lib/pq"

	"email-gateway/shared/email"
)

// LoadedEmail is an outbox row as a worker needs it to decide about an attempt.
type LoadedEmail struct {
	ID             uuid.UUID      `db:"id"`
	CompanyID      uuid.UUID      `db:"company_id"`
	RequestID      string         `db:"request_id"`
	Status         email.Status   `db:"status"`
	Attempts       int            `db:"attempts"`
	Throttles      int            `db:"throttles"`
	Due            bool           `db:"due"` // next_at has come, give or take a second
	Expired        bool           `db:"expired"`
	LaneOpen       bool           `db:"lane_open"` // neither lane nor company is paused
	GateOpen       bool           `db:"gate_open"` // the provider's gate lets it pass
	Probe          bool           `db:"probe"`     // it is the one email that passes a shut gate
	ExpiresAt      time.Time      `db:"expires_at"`
	Payload        []byte         `db:"payload"`
	Sender         string         `db:"sender"`
	HTML           string         `db:"html"`
	Text           string         `db:"text_body"`
	HTMLSHA256     []byte         `db:"html_sha256"`
	CheckerVersion int            `db:"checker_version"`
	Delivery       email.Delivery `db:"delivery"`
	// RecipientKnown says, of an email that names a recipientId, that the company
	// has this recipient, undeleted and at the address the email goes to, or has an
	// import of it under way.
	RecipientKnown bool `db:"recipient_known"`
	// Suppressed is why the company must not write to the email's To; "" if it may.
	Suppressed string `db:"suppressed"`
	// SuppressedCopies are those of its cc and bcc that must be left out.
	SuppressedCopies pq.StringArray `db:"suppressed_copies"`
	// About says that the email is about something: a program may be changing it.
	About bool `db:"about"`

	// MailingID is set for the email of a mailing: it has no body of its own, it is
	// made from the mailing's templates with these values.
	MailingID uuid.NullUUID  `db:"mailing_id"`
	Token     string         `db:"token"`
	Fields    pq.StringArray `db:"fields"`
}

// Loader reads emails, many at a time.
type Loader struct {
	group *Group[uuid.UUID, *LoadedEmail]
	store *Store
}

// NewLoader makes a Loader on the store's connections.
func (s *Store) NewLoader() *Loader {
	return &Loader{store: s, group: NewGroup(uuid.UUID.String, func(uuid.UUID) int { return 4096 }, s.loadEmails).For(s.hands)}
}

// Load reads one email; ErrNotFound if there is none.
func (l *Loader) Load(ctx context.Context, id uuid.UUID) (*LoadedEmail, error) {
	found, err := l.group.Do(ctx, id)
	if err == nil && found == nil {
		err = ErrNotFound
	}
	return found, err
}

// sentIDSQL reads email_logs by primary key and locks nothing.
const sentIDSQL = `SELECT coalesce(max(ses_message_id), '') FROM email_logs WHERE outbox_id = $1`

// SESMessageID is the provider's id of an email, "" if it is not known.
func (l *Loader) SESMessageID(ctx context.Context, id uuid.UUID) (string, error) {
	var found string
	if err := l.store.db.GetContext(ctx, &found, sentIDSQL, id); err != nil {
		return "", fmt.Errorf("read the id of a sent email: %w", translate(err))
	}
	return found, nil
}

// Close waits for the groups under way.
func (l *Loader) Close() { l.group.Wait() }

// loadSQL reads by the primary keys of email_outbox, dispatch_lanes, companies,
// recipients, recipient_intakes, suppressions, mailing_entries and provider_gate. It locks
// nothing: what may have changed meanwhile is asked again by the claim.
const loadSQL = `
SELECT o.id, o.company_id, o.request_id, o.status, o.attempts, o.throttles,
       o.next_at <= now() + interval '1 s' AS due, o.expires_at <= now() AS expired,
       l.id IS NOT NULL AND l.paused_at IS NULL AND l.held_at IS NULL AND coalesce(l.parked_until <= now(), true)
           AND c.suspended_at IS NULL AS lane_open,
       ` + gateIsOpen + ` OR coalesce(o.id = ` + gateProbe + `, false) AS gate_open, coalesce(o.id = ` + gateProbe + `, false) AS probe,
       o.expires_at, o.payload, o.sender, coalesce(o.html, '') AS html, coalesce(o.text_body, '') AS text_body,
       o.html_sha256, coalesce(o.checker_version, 0) AS checker_version, o.delivery,
       r.id IS NOT NULL OR EXISTS (SELECT FROM recipient_intakes i
               WHERE i.recipient_id = (o.payload #>> '{recipient,recipientId}')::uuid AND i.company_id = o.company_id
                 AND split_part(i.email, '@', 1) || '@' || lower(split_part(i.email, '@', 2))
                   = split_part(o.payload ->> 'to', '@', 1) || '@' || lower(split_part(o.payload ->> 'to', '@', 2))) AS recipient_known,
       coalesce((SELECT min(s.reason) FROM suppressions s
                 WHERE s.company_id = o.company_id AND s.address = lower(o.payload ->> 'to')
                   AND (s.reason <> 'UNSUBSCRIBE' OR l.mailing_id IS NOT NULL)), '') AS suppressed,
       CASE WHEN o.payload ?| '{cc,bcc}' THEN
           ARRAY(SELECT copy FROM jsonb_array_elements_text(coalesce(o.payload -> 'cc', '[]') || coalesce(o.payload -> 'bcc', '[]')) AS copy
                 WHERE EXISTS (SELECT FROM suppressions s
                               WHERE s.company_id = o.company_id AND s.address = lower(copy)
                                 AND (s.reason <> 'UNSUBSCRIBE' OR l.mailing_id IS NOT NULL)))
           ELSE '{}' END AS suppressed_copies,
       o.aggregate_type IS NOT NULL AS about, l.mailing_id, coalesce(e.token, '') AS token, coalesce(e.fields, '{}') AS fields
FROM (SELECT * FROM unnest($1::uuid[]) AS t(id) LIMIT $2) t
JOIN email_outbox o ON o.id = t.id AND CASE WHEN t.id IS NOT NULL THEN o.target = 'email:send' END
LEFT JOIN dispatch_lanes l ON l.id = o.lane_id
LEFT JOIN companies c ON c.id = o.company_id
LEFT JOIN mailing_entries e ON e.id = o.id AND l.mailing_id IS NOT NULL
LEFT JOIN recipients r ON r.id = (o.payload #>> '{recipient,recipientId}')::uuid
     AND r.company_id = o.company_id AND r.deleted_at IS NULL
     AND split_part(r.email, '@', 1) || '@' || lower(split_part(r.email, '@', 2))
       = split_part(o.payload ->> 'to', '@', 1) || '@' || lower(split_part(o.payload ->> 'to', '@', 2))`

func (s *Store) loadEmails(ctx context.Context, ids []uuid.UUID) ([]*LoadedEmail, error) {
	var rows []LoadedEmail
	if err := s.loadEmail.selectAll(ctx, &rows, uuidArray(ids), len(ids)); err != nil {
		return nil, fmt.Errorf("load emails: %w", translate(err))
	}
	byID := make(map[uuid.UUID]*LoadedEmail, len(rows))
	for i := range rows {
		byID[rows[i].ID] = &rows[i]
	}
	found := make([]*LoadedEmail, len(ids))
	for i, id := range ids {
		found[i] = byID[id]
	}
	return found, nil
}
