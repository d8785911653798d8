package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/lib/pq"

	"email-gateway/shared/email"
)

// NewEmail is one email to accept: the row the api writes before it answers 202.
type NewEmail struct {
	ID             uuid.UUID // UUIDv7
	CompanyID      uuid.UUID
	RequestID      string
	Job            email.SendJob // Attempt and EnqueuedAt are the dispatcher's to fill in
	Sender         string        // From, with its display name
	HTML           string
	Text           string // "" = none
	HTMLSHA256     []byte
	CheckerVersion int
	CPFCNPJ        []byte // encrypted; nil = none
	Priority       int
	Delivery       email.Delivery
	SendAt         time.Time     // zero = now
	TTL            time.Duration // from acceptance or SendAt, whichever is later
	CreatedAt      time.Time
	Idempotency    *IdempotencyKey // nil = none

	payload []byte
}

// ErrNoLane: the company has no lane for the email's queue, so nothing would ever
// pick it up. It is made with the company.
var ErrNoLane = errors.New("company has no dispatch lane")

// Accepter writes new emails, many at a time.
type Accepter struct {
	store *Store
	group *Group[NewEmail, bool]
}

// NewAccepter makes an Accepter on the store's connections.
func (s *Store) NewAccepter() *Accepter {
	return &Accepter{store: s, group: NewGroup(
		func(e NewEmail) string { return e.ID.String() },
		func(e NewEmail) int { return len(e.HTML) + len(e.Text) + len(e.payload) + len(e.CPFCNPJ) },
		s.insertEmails,
	)}
}

// Accept commits the email and returns nil: from here on it cannot be lost.
//
// A used idempotency key is not an error of the database: the result is a
// *KeyUsedError with the stored answer, and nothing was written. Other errors:
// ErrNoLane, ErrUnavailable (nothing written), ErrUnknownOutcome (ask Exists).
func (a *Accepter) Accept(ctx context.Context, e NewEmail) error {
	var err error
	if e.payload, err = json.Marshal(e.Job); err != nil {
		return fmt.Errorf("encode job: %w", err)
	}
	// A key that expires between the insert and the look-up makes a second round.
	for range 3 {
		inserted, err := a.group.Do(ctx, e)
		if err != nil || inserted {
			return err
		}
		if e.Idempotency == nil {
			return ErrNoLane
		}
		used, err := a.store.usedKey(ctx, e.CompanyID, *e.Idempotency)
		switch {
		case err == nil:
			return &KeyUsedError{Answer: used}
		case !errors.Is(err, ErrNotFound):
			return err
		}
	}
	return ErrNoLane
}

// Close waits for the groups under way.
func (a *Accepter) Close() { a.group.Wait() }

// insertEmailsSQL writes a group of emails and their idempotency keys in one
// commit. A key already there (or in the same group) keeps its email out; another
// transaction that is inserting the same key is waited for. Keys go in sorted, so
// that two groups with the same keys cannot deadlock. The lane is looked up here,
// by dispatch_lanes' unique index, so that no email can stand in a lane that does
// not exist. Times are Postgres's own: a clock of ours that is wrong must not
// delay an email.
const insertEmailsSQL = `
WITH input AS (
    SELECT * FROM unnest(
        $1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::jsonb[], $6::text[], $7::text[], $8::text[], $9::bytea[], $10::smallint[],
        $11::bytea[], $12::smallint[], $13::text[], $14::timestamptz[], $15::bigint[], $16::timestamptz[],
        $17::text[], $18::text[], $19::bytea[], $20::smallint[], $21::bytea[], $22::bigint[])
    AS t(id, company_id, queue, request_id, payload, sender, html, text_body, html_sha256, checker_version,
         cpf_cnpj_enc, priority, delivery, send_at, ttl_ms, created_at,
         route, key, body_sha256, answer_status, answer, keep_ms)
), keys AS (
    INSERT INTO idempotency_keys (company_id, route, key, body_sha256, status, answer, outbox_id, expires_at)
    SELECT company_id, route, key, body_sha256, answer_status, answer, id, now() + keep_ms * interval '1 ms'
    FROM input WHERE key IS NOT NULL
    ORDER BY company_id, route, key
    ON CONFLICT (company_id, route, key) DO NOTHING
    RETURNING outbox_id
)
INSERT INTO email_outbox (id, company_id, lane_id, request_id, payload, sender, html, text_body, html_sha256, checker_version,
                          cpf_cnpj_enc, priority, delivery, created_at, next_at, expires_at)
SELECT i.id, i.company_id, l.id, i.request_id, i.payload, i.sender, i.html, i.text_body, i.html_sha256, i.checker_version,
       i.cpf_cnpj_enc, i.priority, i.delivery, i.created_at,
       greatest(now(), i.send_at), greatest(now(), i.send_at) + i.ttl_ms * interval '1 ms'
FROM input i
JOIN dispatch_lanes l ON l.company_id = i.company_id AND l.queue = i.queue AND l.mailing_id IS NULL
WHERE i.key IS NULL OR i.id IN (SELECT outbox_id FROM keys)
RETURNING id`

func (s *Store) insertEmails(ctx context.Context, emails []NewEmail) ([]bool, error) {
	n := len(emails)
	var (
		ids, companies        = make([]string, n), make([]string, n)
		queues, requests      = make([]string, n), make([]string, n)
		payloads, senders     = make([]string, n), make([]string, n)
		htmls, deliveries     = make([]string, n), make([]string, n)
		texts, routes, keys   = make([]sql.NullString, n), make([]sql.NullString, n), make([]sql.NullString, n)
		htmlSums, taxIDs      = make([][]byte, n), make([][]byte, n)
		bodySums, answers     = make([][]byte, n), make([][]byte, n)
		checkers, priorities  = make([]int64, n), make([]int64, n)
		ttls, statuses, keeps = make([]int64, n), make([]sql.NullInt64, n), make([]sql.NullInt64, n)
		sendAts, createdAts   = make([]sql.NullTime, n), make([]time.Time, n)
	)
	for i, e := range emails {
		ids[i], companies[i] = e.ID.String(), e.CompanyID.String()
		queues[i], requests[i] = email.QueueFor(e.Priority), e.RequestID
		payloads[i], senders[i], htmls[i] = string(e.payload), e.Sender, e.HTML
		texts[i] = sql.NullString{String: e.Text, Valid: e.Text != ""}
		htmlSums[i], checkers[i], taxIDs[i] = e.HTMLSHA256, int64(e.CheckerVersion), e.CPFCNPJ
		priorities[i], deliveries[i] = int64(e.Priority), string(e.Delivery)
		sendAts[i] = sql.NullTime{Time: e.SendAt, Valid: !e.SendAt.IsZero()}
		ttls[i], createdAts[i] = e.TTL.Milliseconds(), e.CreatedAt
		if k := e.Idempotency; k != nil {
			routes[i] = sql.NullString{String: k.Route, Valid: true}
			keys[i] = sql.NullString{String: k.Key, Valid: true}
			bodySums[i], answers[i] = k.BodySHA256, k.Answer
			statuses[i] = sql.NullInt64{Int64: int64(k.Status), Valid: true}
			keeps[i] = sql.NullInt64{Int64: k.Keep.Milliseconds(), Valid: true}
		}
	}
	inserted := make([]string, 0, n)
	err := s.db.SelectContext(ctx, &inserted, insertEmailsSQL,
		pq.Array(ids), pq.Array(companies), pq.Array(queues), pq.Array(requests), pq.Array(payloads), pq.Array(senders),
		pq.Array(htmls), pq.Array(texts), pq.ByteaArray(htmlSums), pq.Array(checkers), pq.ByteaArray(taxIDs), pq.Array(priorities),
		pq.Array(deliveries), pq.Array(sendAts), pq.Array(ttls), pq.Array(createdAts),
		pq.Array(routes), pq.Array(keys), pq.ByteaArray(bodySums), pq.Array(statuses), pq.ByteaArray(answers), pq.Array(keeps))
	if err != nil {
		return nil, fmt.Errorf("insert emails: %w", writeError(err))
	}
	return marked(ids, inserted), nil
}

// marked says for each id whether it is among the found ones.
func marked(ids, found []string) []bool {
	set := make(map[string]struct{}, len(found))
	for _, id := range found {
		set[id] = struct{}{}
	}
	marks := make([]bool, len(ids))
	for i, id := range ids {
		_, marks[i] = set[id]
	}
	return marks
}

// existsSQL reads one row by primary key and locks nothing.
const existsSQL = `SELECT EXISTS (SELECT FROM email_outbox WHERE id = $1)`

// Exists says whether an email was committed, for a caller whose Accept ended with
// ErrUnknownOutcome.
func (s *Store) Exists(ctx context.Context, id uuid.UUID) (bool, error) {
	var found bool
	if err := s.db.GetContext(ctx, &found, existsSQL, id); err != nil {
		return false, fmt.Errorf("look up email: %w", translate(err))
	}
	return found, nil
}
