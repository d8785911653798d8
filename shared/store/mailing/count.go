package mailing

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"

	"email-gateway/shared/store/internal/pg"
)

// OpenMailing is a mailing whose entries still change state, or whose counts may be out of
// date.
type OpenMailing struct {
	ID        uuid.UUID `db:"id"`
	CompanyID uuid.UUID `db:"company_id"`
	Lines     int       `db:"lines"` // how many entries a count reads, about
	// CountedAt is nil if the counts are known to be out of date.
	CountedAt *time.Time `db:"counted_at"`
	AgeMS     int64      `db:"age_ms"`
	// Changed: the mailing is marked, so that an entry has probably changed since the count.
	Changed bool `db:"changed"`
}

// Age returns how long ago the mailing was counted, by Postgres's clock.
func (m OpenMailing) Age() time.Duration { return time.Duration(m.AgeMS) * time.Millisecond }

// openMailingsSQL scans mailings_open, reads all of mailing_marks, finds the marked mailings by
// primary key, and locks nothing. Each step of an expansion and each email that becomes final marks its mailing.
//
// Programs of the previous release add marks to PAUSED mailings only, and none in a transaction that began before the
// pause. No transaction lasts longer than a minute, so a PAUSED mailing is also listed until it was counted a minute
// after the pause. The others are always listed, and counted more and more seldom, except those of which nothing has
// been expanded: their entries do not change.
const openMailingsSQL = `
SELECT id, company_id, total_lines AS lines, counted_at, coalesce(abs(extract(epoch FROM now() - counted_at) * 1000)::bigint, 0) AS age_ms, false AS changed FROM mailings
WHERE NOT dry_run AND (status IN ('PROCESSING', 'SENDING') OR status IN ('QUEUED', 'PENDING') AND expanded_to IS NOT NULL OR settling IS NOT NULL
    OR counted_at IS NULL OR status = 'PAUSED' AND counted_at < updated_at + interval '1 minute')
  AND id NOT IN (SELECT mailing_id FROM mailing_marks)
UNION ALL
SELECT id, company_id, total_lines, counted_at, coalesce(abs(extract(epoch FROM now() - counted_at) * 1000)::bigint, 0), true FROM mailings
WHERE NOT dry_run AND id IN (SELECT mailing_id FROM mailing_marks)
ORDER BY lines, id`

// OpenMailings lists the mailings to count.
func (s *Store) OpenMailings(ctx context.Context) ([]OpenMailing, error) {
	var open []OpenMailing
	err := pg.Translate(s.db.SelectContext(ctx, &open, openMailingsSQL))
	return open, pg.Wrap("list open mailings", err)
}

// Tally is what a count of a mailing's entries found.
type Tally struct {
	// Applied: the counts were written. Otherwise the mailing changed during the count, or another
	// transaction has locked it.
	Applied bool `db:"-"`
	// Completed: this count made the mailing COMPLETED.
	Completed bool `db:"-"`

	Pending      int `db:"pending"` // not expanded yet
	Queued       int `db:"queued"`
	Sent         int `db:"sent"`
	Failed       int `db:"failed"`
	Unknown      int `db:"unknown"` // FAILED, and the provider may have accepted it
	Suppressed   int `db:"suppressed"`
	Expired      int `db:"expired"`
	Cancelled    int `db:"cancelled"`
	InvalidLater int `db:"invalid_later"`
}

// Both statements read the mailing by primary key and its marks by mailing_marks_pkey. A count that may be the last
// one locks the row first. A change that takes an entry out of a final state (a replay, late feedback) updates this row
// too: either the count includes the change, or the change finds the mailing completed and reopens it.
const (
	countStateSQL = `
SELECT status, settling, counted_at, updated_at::text AS version, first_entry, last_entry,
       ARRAY(SELECT k.id FROM mailing_marks k WHERE k.mailing_id = m.id) AS marks
FROM mailings m WHERE id = $1 AND NOT dry_run`
	lockCountStateSQL = countStateSQL + ` FOR NO KEY UPDATE SKIP LOCKED`
)

// tallySQL reads a range of the primary key of mailing_entries and locks nothing. An entry that
// the expander found invalid has a last_attempt; one that the upload found invalid has none.
const tallySQL = `
SELECT count(*) FILTER (WHERE status = 'PENDING') AS pending,
       count(*) FILTER (WHERE status = 'QUEUED') AS queued,
       count(*) FILTER (WHERE status = 'SENT') AS sent,
       count(*) FILTER (WHERE status = 'FAILED' AND NOT outcome_unknown) AS failed,
       count(*) FILTER (WHERE status = 'FAILED' AND outcome_unknown) AS unknown,
       count(*) FILTER (WHERE status = 'SUPPRESSED') AS suppressed,
       count(*) FILTER (WHERE status = 'EXPIRED') AS expired,
       count(*) FILTER (WHERE status = 'CANCELLED') AS cancelled,
       count(*) FILTER (WHERE status = 'INVALID' AND last_attempt IS NOT NULL) AS invalid_later
FROM mailing_entries WHERE id >= $2 AND id <= $3 AND mailing_id = $1`

// writeTallySQL locks the mailing's row by primary key. It does not write a count if another
// count was written since this one began, if the mailing changed since, or if another transaction
// has locked the mailing: the next round counts again. If counted_at was NULL when the count began
// and was cleared again since, only updated_at, $15, shows the change: the feedback
// that is added to the row meanwhile does not count. The statement also
// deletes the marks $16, which the count includes (by mailing_marks_pkey).
//
// The rate is a mean over about the last 10 s, and 0 below one entry per 1,000 s. The last count may
// be days old, but Postgres refuses exp of less than about -745 as an underflow.
//
// The statement writes updated_at only if the status changes. counted_at of a cancelled
// mailing stays NULL while it has queued entries or an EntryAction, and until its last count.
const writeTallySQL = `
WITH tally AS (
    SELECT m.id, n.*, w.whole, m.rate, nullif(greatest(extract(epoch FROM now() - m.counted_at)::double precision, 0), 0) AS seconds,
           n.ended - (m.sent + m.failed + m.unknown + m.suppressed + m.expired + m.cancelled + m.invalid_later) AS more,
           CASE WHEN $5 AND m.status = 'SENDING' AND m.settling IS NULL AND w.whole THEN 'COMPLETED'
                WHEN m.status = 'COMPLETED' AND NOT w.whole THEN 'SENDING' ELSE m.status END AS status
    FROM mailings m
    CROSS JOIN LATERAL (
        SELECT c.*, sent + failed + unknown + suppressed + expired + cancelled + invalid_later AS ended
        FROM (SELECT $6::integer AS pending, $7::integer AS queued, $8::integer AS sent, $9::integer AS failed, $10::integer AS unknown,
                     $11::integer AS suppressed, $12::integer AS expired, $13::integer AS cancelled, $14::integer AS invalid_later) c
    ) n
    CROSS JOIN LATERAL (SELECT n.ended = m.accepted AND n.pending + n.queued = 0 AS whole) w
    WHERE m.id = $1
    FOR NO KEY UPDATE OF m SKIP LOCKED
), written AS (
    UPDATE mailings m SET
        queued = t.queued, sent = t.sent, failed = t.failed, unknown = t.unknown, suppressed = t.suppressed, expired = t.expired,
        cancelled = t.cancelled, invalid_later = t.invalid_later,
        rate = CASE WHEN t.pending + t.queued = 0 OR m.status IN ('PAUSED', 'FAILED') OR r.mean < 0.001 THEN 0 ELSE coalesce(r.mean, t.rate) END,
        status = t.status,
        completed_at = CASE WHEN t.status = m.status THEN m.completed_at WHEN t.status = 'COMPLETED' THEN now() END,
        updated_at = CASE WHEN t.status = m.status THEN m.updated_at ELSE now() END,
        counted_at = CASE WHEN m.status = 'CANCELLED' AND (t.queued > 0 OR m.settling IS NOT NULL OR NOT $5) THEN NULL ELSE now() END
    FROM tally t
    CROSS JOIN LATERAL (SELECT t.rate + (1 - exp(-least(t.seconds, 600) / 10)) * (t.more / t.seconds - t.rate) AS mean) r
    WHERE m.id = t.id AND m.status = $2 AND m.settling IS NOT DISTINCT FROM $3 AND m.counted_at IS NOT DISTINCT FROM $4
      AND (m.counted_at IS NOT NULL OR m.updated_at::text = $15)
    RETURNING m.status
), unmarked AS (
    DELETE FROM mailing_marks WHERE mailing_id = $1 AND id = ANY ($16::bigint[]) AND EXISTS (SELECT FROM written)
)
SELECT status FROM written`

// CountMailing counts a mailing's entries and stores the counts. A SENDING mailing becomes
// COMPLETED if all of its entries are final.
func (s *Store) CountMailing(ctx context.Context, id uuid.UUID) (Tally, error) {
	tally, final, err := s.countMailing(ctx, id, false)
	if err == nil && final {
		tally, _, err = s.countMailing(ctx, id, true)
	}
	return tally, err
}

// countMailing counts once. last requests a count that may be the mailing's last one;
// final reports that such a count is needed.
func (s *Store) countMailing(ctx context.Context, id uuid.UUID, last bool) (tally Tally, final bool, err error) {
	err = s.db.InTx(ctx, func(tx *sqlx.Tx) error {
		state := countStateSQL
		if last {
			state = lockCountStateSQL
		}
		var states []struct {
			Status    Status        `db:"status"`
			Settling  *string       `db:"settling"`
			CountedAt *time.Time    `db:"counted_at"`
			Version   string        `db:"version"`
			First     *uuid.UUID    `db:"first_entry"`
			Last      *uuid.UUID    `db:"last_entry"`
			Marks     pq.Int64Array `db:"marks"`
		}
		if err := tx.SelectContext(ctx, &states, state, id); err != nil || len(states) == 0 {
			return pg.Translate(err)
		}
		m := states[0]
		// A separate statement has a newer snapshot: it sees everything that was committed before the lock.
		if err := tx.GetContext(ctx, &tally, tallySQL, id, m.First, m.Last); err != nil {
			return pg.Translate(err)
		}
		done := tally.Queued == 0 && (m.Status == Sending && tally.Pending == 0 || m.Status == Cancelled || m.Status == Failed)
		if final = m.Settling == nil && (done || m.Status == Completed); final && !last {
			return nil
		}
		var status []Status
		err := tx.SelectContext(ctx, &status, writeTallySQL, id, string(m.Status), m.Settling, m.CountedAt, last, tally.Pending, tally.Queued,
			tally.Sent, tally.Failed, tally.Unknown, tally.Suppressed, tally.Expired, tally.Cancelled, tally.InvalidLater, m.Version, m.Marks)
		if err != nil {
			return pg.Translate(err)
		}
		tally.Applied = len(status) == 1
		tally.Completed = tally.Applied && status[0] == Completed && m.Status != Completed
		return nil
	})
	if err != nil {
		return Tally{}, false, fmt.Errorf("count mailing: %w", err)
	}
	return tally, final, nil
}
