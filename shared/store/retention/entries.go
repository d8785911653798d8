package retention

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"email-gateway/shared/store/internal/pg"
)

// keptEntriesSQL scans mailings_kept, whose predicate is its condition, finds the first mailing
// older than its retention, and locks it. It skips mailings that another process has locked.
// Companies are looked up by company_retention_pkey. The entries stay while an email of the
// mailing is in the outbox (a range of email_outbox_pkey), and until the mailing was counted,
// because the count needs the entries. A dry run is not counted.
const keptEntriesSQL = `
SELECT m.id, m.first_entry, m.last_entry
FROM mailings m LEFT JOIN company_retention r ON r.company_id = m.company_id
WHERE (m.entries_deleted_at IS NULL OR m.first_entry IS NOT NULL) AND m.status IN ('COMPLETED', 'CANCELLED', 'FAILED')
  AND m.settling IS NULL AND (m.counted_at IS NOT NULL OR m.dry_run)
  AND coalesce(m.completed_at, m.updated_at) < now() - coalesce(r.logs_days * interval '1 day', $1 * interval '1 ms')
  AND NOT EXISTS (SELECT FROM email_outbox o JOIN dispatch_lanes l ON l.id = o.lane_id
                  WHERE o.id >= m.first_entry AND o.id <= m.last_entry AND l.mailing_id = m.id)
ORDER BY coalesce(m.completed_at, m.updated_at) LIMIT 1
FOR UPDATE OF m SKIP LOCKED`

// Both statements delete along the primary key of their table. entriesDeletedSQL sets first_entry to
// the last deleted entry, from which the next call continues.
const (
	deleteEntriesSQL = `
WITH next AS MATERIALIZED (
    SELECT id FROM mailing_entries WHERE id >= $2 AND id <= $3 AND (mailing_id = $1) IS TRUE ORDER BY id LIMIT $4
), gone AS (
    DELETE FROM mailing_entries e USING next WHERE e.id = next.id RETURNING e.id
)
SELECT count(*) AS done, (SELECT id FROM next ORDER BY id DESC LIMIT 1) AS last FROM gone`
	deleteRejectsSQL = `
DELETE FROM mailing_rejects WHERE mailing_id = $1 AND line_no IN (
    SELECT line_no FROM mailing_rejects WHERE mailing_id = $1 ORDER BY line_no LIMIT $2)`
	entriesDeletedSQL = `
UPDATE mailings SET
    entries_deleted_at = coalesce(entries_deleted_at, now()),
    first_entry = CASE WHEN NOT $2 THEN coalesce($3, first_entry) END,
    last_entry = CASE WHEN NOT $2 THEN last_entry END
WHERE id = $1`
)

// PurgeEntries deletes at most limit entries and limit rejected lines of a mailing that ended longer
// ago than age, or than its company's own retention; age 0 = only companies with such a retention.
// The counts of the mailing stay.
func (s *Store) PurgeEntries(ctx context.Context, age time.Duration, limit int) (Cleaned, error) {
	var done Cleaned
	err := s.db.InTx(ctx, func(tx *sqlx.Tx) error {
		var found []struct {
			ID    uuid.UUID     `db:"id"`
			First uuid.NullUUID `db:"first_entry"`
			Last  uuid.NullUUID `db:"last_entry"`
		}
		if err := tx.SelectContext(ctx, &found, keptEntriesSQL, milliseconds(age)); err != nil || len(found) == 0 {
			return pg.Translate(err)
		}
		m := found[0]
		if _, err := tx.ExecContext(ctx, pg.AlongKeySQL); err != nil {
			return pg.Translate(err)
		}
		var entries struct {
			Done int           `db:"done"`
			Last uuid.NullUUID `db:"last"`
		}
		if err := tx.GetContext(ctx, &entries, deleteEntriesSQL, m.ID, m.First, m.Last, limit); err != nil {
			return pg.Translate(err)
		}
		result, err := tx.ExecContext(ctx, deleteRejectsSQL, m.ID, limit)
		if err != nil {
			return pg.Translate(err)
		}
		rejects, err := result.RowsAffected()
		if err != nil {
			return err
		}
		done = Cleaned{Count: entries.Done + int(rejects), More: true}
		last := entries.Done < limit && int(rejects) < limit
		_, err = tx.ExecContext(ctx, entriesDeletedSQL, m.ID, last, entries.Last)
		return pg.Translate(err)
	})
	if err != nil {
		return Cleaned{}, fmt.Errorf("clean entries: %w", err)
	}
	return done, nil
}
