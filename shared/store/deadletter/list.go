package deadletter

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"email-gateway/shared/store/emails"
	"email-gateway/shared/store/internal/pg"
)

// Resolution is how a dead letter was resolved.
type Resolution string

const (
	// Retried: the email, import or mailing was started again.
	Retried Resolution = "retried"
	// Discarded: it was resolved without further action.
	Discarded Resolution = "discarded"
	// SentAfterAll: later feedback showed that the provider had accepted the email.
	SentAfterAll Resolution = "sent"
)

// Letter is a dead letter: the record of an email, a mailing, a recipient import or a task that has failed permanently.
type Letter struct {
	ID         uuid.UUID   `db:"id"`
	CompanyID  *uuid.UUID  `db:"company_id"` // nil = of a task that DeadLetterTask recorded
	MailingID  *uuid.UUID  `db:"mailing_id"`
	OutboxID   *uuid.UUID  `db:"outbox_id"`
	Target     string      `db:"target"`
	Recipient  *string     `db:"email"`
	Reason     string      `db:"reason"` // a code
	Attempts   int         `db:"attempts"`
	Detail     *string     `db:"last_error"`
	CreatedAt  time.Time   `db:"created_at"`
	ResolvedAt *time.Time  `db:"resolved_at"` // nil = open
	Resolution *Resolution `db:"resolution"`
	ResolvedBy *string     `db:"resolved_by"` // an Actor's text
	Note       *string     `db:"resolution_note"`
	ReplayID   *uuid.UUID  `db:"replay_id"`
	// Payload is the payload of the task as JSON. Lists omit it.
	Payload json.RawMessage `db:"payload"`
}

const letterColumns = `
d.id, d.company_id, d.mailing_id, d.outbox_id, d.target, d.email, d.reason, d.attempts, d.last_error, d.created_at,
d.resolved_at, d.resolution, d.resolved_by, d.resolution_note, d.replay_id`

// LetterFilter selects dead letters; zero fields do not filter. A replay stores it as JSON.
type LetterFilter struct {
	Reason        string     `json:"reason,omitempty"`
	Target        string     `json:"target,omitempty"`
	MailingID     *uuid.UUID `json:"mailingId,omitempty"`
	Recipient     string     `json:"recipient,omitempty"` // case-insensitive
	CreatedAfter  *time.Time `json:"createdAfter,omitempty"`
	CreatedBefore *time.Time `json:"createdBefore,omitempty"` // exclusive
}

// LetterCursor is a position in the list of dead letters. The zero value is the beginning.
type LetterCursor struct {
	At time.Time
	ID uuid.UUID
}

// LetterQuery selects a page of dead letters, newest first.
type LetterQuery struct {
	LetterFilter
	Resolved *bool // nil = both open and resolved
	Cursor   LetterCursor
	Limit    int
}

// LetterPage is a page of a list. Next is the cursor of the next page; the zero cursor means that there is none. A page may be
// short or empty although there is a next one: see emails.ListScan.
type LetterPage struct {
	Letters []Letter
	Next    LetterCursor
}

// Parts of the statements below. $1 is the company, $2 and $3 are the cursor, and $4 to $9 the filter. $10 is "true" for
// resolved dead letters, "false" for open ones, and empty for both. $11 is a replay: the dead letters that it has resolved
// match in any case. $12 is the maximum number of rows to read, and $13 the size of the page. The indexes cover the company and
// the time only; the other filters are applied to the next $12 rows, which takes a few ms per page.
const (
	ofCompanySQL = `company_id = $1`
	ofAllSQL     = `$1::uuid IS NULL`

	inTimeSQL = `created_at >= coalesce($4::timestamptz, '-infinity') AND created_at < coalesce($5::timestamptz, 'infinity')`
	fitsSQL   = `
($6 = '' OR reason = $6) AND ($7 = '' OR target = $7) AND ($8::uuid IS NULL OR mailing_id = $8) AND ($9 = '' OR lower(email) = lower($9))
AND ($10 = '' OR (resolved_at IS NOT NULL) = ($10 = 'true') OR replay_id = $11::uuid)`

	behindSQL = ` AND (created_at, id) < (coalesce($2::timestamptz, 'infinity'), coalesce($3::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')) AND ` + inTimeSQL
	aheadSQL  = ` AND (created_at, id) > (coalesce($2::timestamptz, '-infinity'), coalesce($3::uuid, '00000000-0000-0000-0000-000000000000')) AND ` + inTimeSQL

	scanSQL = `
WITH scanned AS MATERIALIZED (
    SELECT id, created_at, ` + fitsSQL + ` AS fits FROM dead_letters WHERE `

	newestFirstSQL = `
    ORDER BY created_at DESC, id DESC LIMIT $12
), chosen AS (
    SELECT *, (SELECT count(*) FROM scanned) = $12 AS more FROM scanned
    WHERE fits OR id = (SELECT id FROM scanned ORDER BY created_at, id LIMIT 1)
    ORDER BY created_at DESC, id DESC LIMIT $13 + 1
)
SELECT ` + letterColumns + `, coalesce(c.fits, false) AS fits, c.more
FROM chosen c JOIN dead_letters d ON d.id = c.id ORDER BY c.created_at DESC, c.id DESC`

	oldestFirstSQL = `
    ORDER BY created_at, id LIMIT $12
), chosen AS (
    SELECT *, (SELECT count(*) FROM scanned) = $12 AS more FROM scanned
    WHERE fits OR id = (SELECT id FROM scanned ORDER BY created_at DESC, id DESC LIMIT 1)
    ORDER BY created_at, id LIMIT $13 + 1
)
SELECT ` + letterColumns + `, coalesce(c.fits, false) AS fits, c.more
FROM chosen c JOIN dead_letters d ON d.id = c.id ORDER BY c.created_at, c.id`
)

// The lists lock nothing. They read the dead letters of a company along dead_letters_company, and those of all companies along
// dead_letters_age; they read the rows of the page by primary key. They also return the last row that was read, even if it does
// not match: the next page begins there.
const (
	listLettersSQL      = scanSQL + ofCompanySQL + behindSQL + newestFirstSQL
	listAllLettersSQL   = scanSQL + ofAllSQL + behindSQL + newestFirstSQL
	nextLettersSQL      = scanSQL + ofCompanySQL + aheadSQL + oldestFirstSQL
	nextOfAllLettersSQL = scanSQL + ofAllSQL + aheadSQL + oldestFirstSQL
)

// ListDeadLetters returns a page of the company's dead letters, newest first.
func (s *Store) ListDeadLetters(ctx context.Context, company uuid.UUID, q LetterQuery) (LetterPage, error) {
	return pageOfLetters(ctx, s.db, listLettersSQL, &company, q, nil)
}

// ListAllDeadLetters is ListDeadLetters for operators: it returns the dead letters of all companies and those without a
// company.
func (s *Store) ListAllDeadLetters(ctx context.Context, q LetterQuery) (LetterPage, error) {
	return pageOfLetters(ctx, s.db, listAllLettersSQL, nil, q, nil)
}

// selecter is a database or a transaction.
type selecter interface {
	SelectContext(ctx context.Context, dest any, query string, args ...any) error
}

func pageOfLetters(ctx context.Context, db selecter, statement string, company *uuid.UUID, q LetterQuery, replay *uuid.UUID) (LetterPage, error) {
	var rows []struct {
		Letter
		Fits bool `db:"fits"`
		More bool `db:"more"` // there may be further rows
	}
	limit := max(q.Limit, 1)
	args := append([]any{company}, q.args(replay)...)
	if err := db.SelectContext(ctx, &rows, statement, append(args, max(emails.ListScan, limit+1), limit)...); err != nil {
		return LetterPage{}, fmt.Errorf("list dead letters: %w", pg.Translate(err))
	}
	page := LetterPage{Letters: []Letter{}}
	for _, r := range rows {
		if r.Fits && len(page.Letters) < limit {
			page.Letters = append(page.Letters, r.Letter)
		}
	}
	switch n := len(rows); {
	case n > limit && rows[limit].Fits: // the page is full, and another matching row follows
		page.Next = cursorAt(rows[limit-1].Letter)
	case n > 0 && rows[n-1].More:
		page.Next = cursorAt(rows[n-1].Letter)
	}
	return page, nil
}

// before returns the part of the page before one of its letters. Its Next is zero if that is the first letter: the next page
// then begins where this one did.
func (p LetterPage) before(id uuid.UUID) LetterPage {
	n := slices.IndexFunc(p.Letters, func(l Letter) bool { return l.ID == id })
	if n == 0 {
		return LetterPage{Letters: p.Letters[:0]}
	}
	return LetterPage{Letters: p.Letters[:n], Next: cursorAt(p.Letters[n-1])}
}

func cursorAt(l Letter) LetterCursor { return LetterCursor{At: l.CreatedAt, ID: l.ID} }

// args returns the parameters $2 to $11.
func (q *LetterQuery) args(replay *uuid.UUID) []any {
	var at *time.Time
	var id *uuid.UUID
	if q.Cursor != (LetterCursor{}) {
		at, id = &q.Cursor.At, &q.Cursor.ID
	}
	resolved := ""
	if q.Resolved != nil {
		resolved = fmt.Sprint(*q.Resolved)
	}
	return []any{at, id, q.CreatedAfter, q.CreatedBefore, q.Reason, q.Target, q.MailingID, q.Recipient, resolved, replay}
}

const (
	// countScan is how many rows one statement of a count reads: some 100 ms.
	countScan = 50000
	// maxCountScans bounds a count. A request of a company makes only one scan.
	maxCountScans = 200
)

// They read the next $12 rows along the same indexes as the lists. They return how many of them match, and the last one if more
// may follow.
const (
	countedSQL = `
    ORDER BY created_at, id LIMIT $12
)
SELECT (SELECT count(*) FROM scanned WHERE fits) AS matched, last.created_at, last.id
FROM (SELECT) one LEFT JOIN (SELECT created_at, id FROM scanned ORDER BY created_at, id OFFSET $12 - 1) last ON true`

	countLettersSQL    = scanSQL + ofCompanySQL + aheadSQL + countedSQL
	countAllLettersSQL = scanSQL + ofAllSQL + aheadSQL + countedSQL
)

// CountDeadLetters counts the open dead letters that match the filter among the first ten million. A nil company counts those of
// all companies, for operators. The time of each of its statements is bounded, and its own is not: it is for a person who waits.
func (s *Store) CountDeadLetters(ctx context.Context, company *uuid.UUID, f LetterFilter) (int, error) {
	return s.countLetters(ctx, company, f, maxCountScans)
}

// countLetters is CountDeadLetters with that many scans, from the oldest dead letter on.
func (s *Store) countLetters(ctx context.Context, company *uuid.UUID, f LetterFilter, scans int) (n int, err error) {
	statement, open := countLettersSQL, false
	if company == nil {
		statement = countAllLettersSQL
	}
	q := LetterQuery{LetterFilter: f, Resolved: &open}
	for range scans {
		var scanned struct {
			Matched int           `db:"matched"`
			At      *time.Time    `db:"created_at"`
			ID      uuid.NullUUID `db:"id"`
		}
		if err := s.db.GetContext(ctx, &scanned, statement, append(append([]any{company}, q.args(nil)...), countScan)...); err != nil {
			return 0, fmt.Errorf("count dead letters: %w", pg.Translate(err))
		}
		if n += scanned.Matched; scanned.At == nil {
			break
		}
		q.Cursor = LetterCursor{At: *scanned.At, ID: scanned.ID.UUID}
	}
	return n, nil
}

// Both find by primary key and lock nothing.
const (
	findAnyLetterSQL = `SELECT ` + letterColumns + `, d.payload FROM dead_letters d WHERE d.id = $1`
	findLetterSQL    = findAnyLetterSQL + ` AND d.company_id = $2`
)

// FindDeadLetter returns one dead letter of the company with its payload, or
// pg.ErrNotFound.
func (s *Store) FindDeadLetter(ctx context.Context, company, id uuid.UUID) (Letter, error) {
	return findLetter(ctx, s.db, findLetterSQL, id, company)
}

// FindAnyDeadLetter is FindDeadLetter for operators: for any company, and for dead letters without one.
func (s *Store) FindAnyDeadLetter(ctx context.Context, id uuid.UUID) (Letter, error) {
	return findLetter(ctx, s.db, findAnyLetterSQL, id)
}

func findLetter(ctx context.Context, db sqlx.QueryerContext, statement string, args ...any) (Letter, error) {
	var found Letter
	if err := sqlx.GetContext(ctx, db, &found, statement, args...); err != nil {
		return Letter{}, fmt.Errorf("find dead letter: %w", pg.Translate(err))
	}
	return found, nil
}
