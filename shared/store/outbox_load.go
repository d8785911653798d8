package store

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
)

// LoadedEmail is an outbox row as a worker needs it to decide about an attempt.
type LoadedEmail struct {
	ID             uuid.UUID
	CompanyID      uuid.UUID
	RequestID      string
	Status         email.Status
	Attempts       int
	Throttles      int
	Due            bool // next_at has come, give or take a second
	Expired        bool
	LaneOpen       bool // neither lane nor company is paused
	ExpiresAt      time.Time
	Payload        []byte
	Sender         string
	HTML           string
	Text           string
	HTMLSHA256     []byte
	CheckerVersion int
	Delivery       email.Delivery
	// RecipientKnown says, of an email that names a recipientId, that the company
	// has this recipient, undeleted and at the address the email goes to.
	RecipientKnown bool
}

// Loader reads emails, many at a time.
type Loader struct {
	group *Group[uuid.UUID, *LoadedEmail]
}

// NewLoader makes a Loader on the store's connections.
func (s *Store) NewLoader() *Loader {
	return &Loader{group: NewGroup(uuid.UUID.String, func(uuid.UUID) int { return 4096 }, s.loadEmails)}
}

// Load reads one email; ErrNotFound if there is none.
func (l *Loader) Load(ctx context.Context, id uuid.UUID) (*LoadedEmail, error) {
	found, err := l.group.Do(ctx, id)
	if err == nil && found == nil {
		err = ErrNotFound
	}
	return found, err
}

// Close waits for the groups under way.
func (l *Loader) Close() { l.group.Wait() }

// loadSQL reads by the primary keys of email_outbox, dispatch_lanes, companies and
// recipients. It locks nothing: what may have changed meanwhile is asked again by
// the claim.
const loadSQL = `
SELECT o.id, o.company_id, o.request_id, o.status, o.attempts, o.throttles,
       o.next_at <= now() + interval '1 s' AS due, o.expires_at <= now() AS expired,
       l.paused_at IS NULL AND coalesce(l.parked_until <= now(), true) AND c.suspended_at IS NULL AS lane_open,
       o.expires_at, o.payload, o.sender, o.html, o.text_body, o.html_sha256, o.checker_version, o.delivery,
       r.id IS NOT NULL AS recipient_known
FROM email_outbox o
JOIN dispatch_lanes l ON l.id = o.lane_id
JOIN companies c ON c.id = o.company_id
LEFT JOIN recipients r ON r.id = (o.payload #>> '{recipient,recipientId}')::uuid
     AND r.company_id = o.company_id AND r.deleted_at IS NULL
     AND split_part(r.email, '@', 1) || '@' || lower(split_part(r.email, '@', 2))
       = split_part(o.payload ->> 'to', '@', 1) || '@' || lower(split_part(o.payload ->> 'to', '@', 2))
WHERE o.id = ANY ($1::uuid[]) AND o.target = 'email:send'`

func (s *Store) loadEmails(ctx context.Context, ids []uuid.UUID) ([]*LoadedEmail, error) {
	rows, err := s.db.QueryContext(ctx, loadSQL, uuidArray(ids))
	if err != nil {
		return nil, fmt.Errorf("load emails: %w", translate(err))
	}
	defer func() { _ = rows.Close() }() // rows.Err below reports what matters
	byID := make(map[uuid.UUID]*LoadedEmail, len(ids))
	for rows.Next() {
		var e LoadedEmail
		var text sql.NullString
		if err := rows.Scan(&e.ID, &e.CompanyID, &e.RequestID, &e.Status, &e.Attempts, &e.Throttles, &e.Due, &e.Expired, &e.LaneOpen,
			&e.ExpiresAt, &e.Payload, &e.Sender, &e.HTML, &text, &e.HTMLSHA256, &e.CheckerVersion, &e.Delivery,
			&e.RecipientKnown); err != nil {
			return nil, fmt.Errorf("load emails: %w", err)
		}
		e.Text = text.String
		byID[e.ID] = &e
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("load emails: %w", translate(err))
	}
	found := make([]*LoadedEmail, len(ids))
	for i, id := range ids {
		found[i] = byID[id]
	}
	return found, nil
}
