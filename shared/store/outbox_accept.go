package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

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
	Aggregate      *Aggregate      // what it is about; nil = nothing that anybody named

	payload []byte
}

// ErrNoLane: the company has no lane for the email's queue, so nothing would ever
// pick it up. It is made with the company.
var ErrNoLane = errors.New("company has no dispatch lane")

// Accepter writes new emails, many at a time.
type Accepter struct {
	store *Store
	group *Group[NewEmail, accepted]
	aside *aside[uuid.UUID] // companies
	near  *nearQuotas
}

// accepted is what became of an email in a group. held: it was not written, because another
// transaction has held up the idempotency key of this or another email of the group.
type accepted struct {
	inserted bool
	held     bool
}

// keyWait is how long a group waits for another transaction that is inserting one of its
// idempotency keys: longer than a commit takes.
const keyWait = 100 * time.Millisecond

// NewAccepter makes an Accepter on the store's connections.
func (s *Store) NewAccepter() *Accepter {
	return &Accepter{store: s, aside: newAside[uuid.UUID](), near: newNearQuotas(s), group: NewGroup(
		func(e NewEmail) string { return e.ID.String() },
		func(e NewEmail) int { return len(e.HTML) + len(e.Text) + len(e.payload) + len(e.CPFCNPJ) },
		s.insertGroup,
	).Fair(func(e NewEmail) uuid.UUID { return e.CompanyID })}
}

// Accept commits the email and returns nil: from here on it cannot be lost.
//
// A used idempotency key is not an error of the database: the result is a
// *KeyUsedError with the stored answer, and nothing was written; and likewise a
// *AggregateTakenError for what an earlier email is about. *QuotaError: a quota of the
// company would be exceeded; the caller looks for the answer to an idempotency key itself.
// Other errors: ErrNoLane, ErrAggregateBusy, ErrInProgress, ErrBusy, ErrUnavailable (nothing
// written), ErrUnknownOutcome (ask Exists).
func (a *Accepter) Accept(ctx context.Context, e NewEmail) error {
	var err error
	if e.payload, err = json.Marshal(e.Job); err != nil {
		return fmt.Errorf("encode job: %w", err)
	}
	near, err := a.store.quotas.near(ctx, e.CompanyID, e.demand())
	if err != nil {
		return err
	}
	// A key that expires between the insert and the look-up makes a second round.
	for range 3 {
		inserted, err := a.insert(ctx, e, near)
		var taken *AggregateTakenError
		if errors.As(err, &taken) {
			return a.store.answeredBefore(ctx, e, taken)
		}
		if err != nil || inserted {
			return err
		}
		// The insert may have met itself: it is run again when its answer was lost.
		stands, err := a.store.Exists(ctx, e.ID)
		switch {
		case err != nil:
			return errors.Join(ErrUnknownOutcome, err)
		case stands:
			return nil
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

// insert joins the email to a group. One about something does not join: a program's open
// transaction may hold its key, and nobody else is to wait for that. Nor does one with an
// idempotency key of a company one of whose keys another transaction held a moment ago.
func (a *Accepter) insert(ctx context.Context, e NewEmail, near bool) (bool, error) {
	switch {
	case e.Aggregate != nil:
		return a.store.insertAbout(ctx, e, near)
	case near:
		return a.near.insertNear(ctx, e)
	case e.Idempotency == nil || !a.aside.holds(e.CompanyID):
		if done, err := a.group.Do(ctx, e); err != nil || !done.held {
			return done.inserted, err
		}
	}
	return a.insertAlone(ctx, e)
}

// insertAlone inserts an email with an idempotency key by itself, and waits for the key as
// long as bounded lets it.
func (a *Accepter) insertAlone(ctx context.Context, e NewEmail) (bool, error) {
	inserted, err := bounded(ctx, a.store.waits, e.key().row(e.CompanyID), func(wait time.Duration) ([]bool, error) {
		inserted, err := a.store.insertEmails(ctx, []NewEmail{e}, wait)
		if isLockTimeout(err) {
			a.aside.add(e.CompanyID)
		}
		return inserted, err
	})
	if err != nil {
		return false, heldKey(err)
	}
	return inserted[0], nil
}

// heldKey says of a key that another transaction holds, for too long or while others wait for
// it already, that its request is under way.
func heldKey(err error) error {
	if isRowWait(err) {
		return errors.Join(ErrInProgress, err)
	}
	return held(err)
}

// insertGroup writes a group. When another transaction holds up one of its keys, the emails
// without a key are written, and the others left to be written one by one, each company's at
// its own cost. A lock of a whole table is waited for: it concerns everybody.
func (s *Store) insertGroup(ctx context.Context, emails []NewEmail) ([]accepted, error) {
	wait := keyWait
	if !slices.ContainsFunc(emails, isKeyed) {
		wait = 0
	}
	inserted, err := s.insertEmails(ctx, emails, wait)
	switch {
	case isRowWait(err):
		return s.insertUnkeyed(ctx, emails)
	case isLockTimeout(err):
		inserted, err = s.insertEmails(ctx, emails, 0)
	}
	if err != nil {
		return nil, err
	}
	results := make([]accepted, len(emails))
	for i := range results {
		results[i].inserted = inserted[i]
	}
	return results, nil
}

func (s *Store) insertUnkeyed(ctx context.Context, emails []NewEmail) ([]accepted, error) {
	free := slices.DeleteFunc(slices.Clone(emails), isKeyed)
	var inserted []bool
	if len(free) > 0 {
		var err error
		if inserted, err = s.insertEmails(ctx, free, 0); err != nil {
			return nil, err
		}
	}
	results := make([]accepted, len(emails))
	for i, e := range emails {
		if results[i].held = isKeyed(e); !results[i].held {
			results[i].inserted, inserted = inserted[0], inserted[1:]
		}
	}
	return results, nil
}

func isKeyed(e NewEmail) bool { return e.Idempotency != nil }

// Close waits for the groups under way.
func (a *Accepter) Close() {
	a.group.Wait()
	a.near.waitNear()
}

// insertEmailsSQL writes a group of emails and their idempotency keys in one
// commit. A key already there (or in the same group) keeps its email out; another
// transaction that is inserting the same key is waited for, like every other lock, for as many
// milliseconds as $28 says (0: until statement_timeout). Keys go in sorted, so
// that two groups with the same keys cannot deadlock. The lane is looked up here,
// by dispatch_lanes' unique index, so that no email can stand in a lane that does
// not exist. An id already there is left as it is: ids are ours and new, so it is
// this very email. The times that decide are Postgres's own: a clock of ours that is
// wrong must not delay an email.
const insertEmailsSQL = acceptInputSQL + insertRowsSQL

// insertScheduledSQL is insertEmailsSQL for a group with scheduled emails. It also writes
// the email_logs rows of those, in the same commit, so that every search finds them by an
// index of email_logs. Such a row has no event: event_seq is 0 and last_event is NULL. Emails
// that are due get their row from the worker, so groups without a scheduled email do not pay
// for this.
const insertScheduledSQL = acceptInputSQL + `, accepted AS (` + insertRowsSQL + `, company_id, request_id, payload, next_at, expires_at, created_at
), logged AS (
    INSERT INTO email_logs (outbox_id, company_id, recipient_id, recipient, subject, status, attempts, request_id, external_id, tags,
                            expires_at, created_at, event_seq, send_at)
    SELECT a.id, a.company_id, (a.payload #>> '{recipient,recipientId}')::uuid, a.payload ->> 'to', a.payload ->> 'subject', 'PENDING', 0,
           a.request_id, a.payload #>> '{recipient,externalId}', ARRAY(SELECT jsonb_array_elements_text(coalesce(a.payload -> 'tags', '[]'))),
           a.expires_at, a.created_at, 0, a.next_at
    FROM accepted a WHERE a.next_at > now()
)
SELECT id FROM accepted`

// acceptStatement is the statement that writes the emails.
func acceptStatement(emails []NewEmail) string {
	if anyScheduled(emails) {
		return insertScheduledSQL
	}
	return insertEmailsSQL
}

func anyScheduled(emails []NewEmail) bool {
	return slices.ContainsFunc(emails, func(e NewEmail) bool { return !e.SendAt.IsZero() })
}

// Both accept statements consist of these: the rows to write with their lanes and keys, and
// the insert.
const (
	acceptInputSQL = `
WITH input AS (
    SELECT t.*, l.id AS lane_id
    FROM (SELECT * FROM unnest(
        $1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::jsonb[], $6::text[], $7::text[], $8::text[], $9::bytea[], $10::bigint[],
        $11::bytea[], $12::bigint[], $13::text[], $14::timestamptz[], $15::bigint[], $16::timestamptz[],
        $17::bool[], $18::text[], $19::text[], $20::bytea[], $21::bigint[], $22::bytea[], $23::bigint[],
        $24::text[], $25::text[], $26::text[])
    AS t(id, company_id, queue, request_id, payload, sender, html, text_body, html_sha256, checker_version,
         cpf_cnpj_enc, priority, delivery, send_at, ttl_ms, created_at,
         keyed, route, key, body_sha256, answer_status, answer, keep_ms,
         aggregate_type, aggregate_id, event_type) LIMIT $27) t
    JOIN dispatch_lanes l ON l.company_id = t.company_id AND l.queue = t.queue AND l.mailing_id IS NULL
), keys AS (
    INSERT INTO idempotency_keys (company_id, route, key, body_sha256, status, answer, outbox_id, expires_at)
    SELECT company_id, route, key, body_sha256, answer_status, answer, id, now() + keep_ms * interval '1 ms'
    FROM input
    WHERE keyed AND (SELECT set_config('lock_timeout', $28, true)) IS NOT NULL
    ORDER BY company_id, route, key
    ON CONFLICT (company_id, route, key) DO NOTHING
    RETURNING outbox_id
)`
	insertRowsSQL = `
INSERT INTO email_outbox (id, company_id, lane_id, request_id, payload, sender, html, text_body, html_sha256, checker_version,
                          cpf_cnpj_enc, priority, delivery, aggregate_type, aggregate_id, event_type, created_at, next_at, expires_at)
SELECT id, company_id, lane_id, request_id, payload, sender, html, text_body, html_sha256, checker_version,
       cpf_cnpj_enc, priority, delivery, aggregate_type, aggregate_id, event_type, created_at,
       greatest(now(), send_at), greatest(now(), send_at) + ttl_ms * interval '1 ms'
FROM input
WHERE NOT keyed OR id IN (SELECT outbox_id FROM keys)
ON CONFLICT (id) DO NOTHING
RETURNING id`
)

// acceptColumns turns emails into one array per column of t, how many there are, and how long
// a lock is waited for.
func acceptColumns(emails []NewEmail, wait time.Duration) []any {
	return []any{
		uuids(emails, func(e *NewEmail) uuid.UUID { return e.ID }),
		uuids(emails, func(e *NewEmail) uuid.UUID { return e.CompanyID }),
		texts(emails, func(e *NewEmail) string { return email.QueueFor(e.Priority) }),
		texts(emails, func(e *NewEmail) string { return e.RequestID }),
		jsonbs(emails, func(e *NewEmail) []byte { return e.payload }),
		texts(emails, func(e *NewEmail) string { return e.Sender }),
		texts(emails, func(e *NewEmail) string { return e.HTML }),
		optionalTexts(emails, func(e *NewEmail) string { return e.Text }),
		byteas(emails, func(e *NewEmail) []byte { return e.HTMLSHA256 }),
		bigints(emails, func(e *NewEmail) int64 { return int64(e.CheckerVersion) }),
		byteas(emails, func(e *NewEmail) []byte { return e.CPFCNPJ }),
		bigints(emails, func(e *NewEmail) int64 { return int64(e.Priority) }),
		texts(emails, func(e *NewEmail) string { return string(e.Delivery) }),
		times(emails, func(e *NewEmail) time.Time { return e.SendAt }),
		bigints(emails, func(e *NewEmail) int64 { return e.TTL.Milliseconds() }),
		times(emails, func(e *NewEmail) time.Time { return e.CreatedAt }),
		bools(emails, func(e *NewEmail) bool { return e.Idempotency != nil }),
		texts(emails, func(e *NewEmail) string { return e.key().Route }),
		texts(emails, func(e *NewEmail) string { return e.key().Key }),
		byteas(emails, func(e *NewEmail) []byte { return e.key().BodySHA256 }),
		bigints(emails, func(e *NewEmail) int64 { return int64(e.key().Status) }),
		byteas(emails, func(e *NewEmail) []byte { return e.key().Answer }),
		bigints(emails, func(e *NewEmail) int64 { return e.key().Keep.Milliseconds() }),
		optionalTexts(emails, func(e *NewEmail) string { return e.about().Type }),
		optionalTexts(emails, func(e *NewEmail) string { return e.about().ID }),
		optionalTexts(emails, func(e *NewEmail) string { return e.about().EventType }),
		len(emails), lockTimeout(wait),
	}
}

// insertEmails says of each email whether it was inserted.
func (s *Store) insertEmails(ctx context.Context, emails []NewEmail, wait time.Duration) ([]bool, error) {
	statement := s.insertEmail
	if anyScheduled(emails) {
		statement = s.scheduleEmail
	}
	var inserted []uuid.UUID
	err := write(func(columns []any) error {
		return statement.selectAll(ctx, &inserted, columns...)
	}, acceptColumns(emails, wait)...)
	if err != nil {
		return nil, fmt.Errorf("insert emails: %w", err)
	}
	done := make(map[uuid.UUID]bool, len(inserted))
	for _, id := range inserted {
		done[id] = true
	}
	results := make([]bool, len(emails))
	for i := range emails {
		results[i] = done[emails[i].ID]
	}
	return results, nil
}

// key is the email's idempotency key, the empty one if it has none.
func (e *NewEmail) key() IdempotencyKey {
	if e.Idempotency == nil {
		return IdempotencyKey{}
	}
	return *e.Idempotency
}

// about is what the email is about, the empty one if that has no name.
func (e *NewEmail) about() Aggregate {
	if e.Aggregate == nil {
		return Aggregate{}
	}
	return *e.Aggregate
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
