package retention

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"

	"email-gateway/shared/store/internal/pg"
)

// ErrInUse means that another transaction uses the table, so that the lock timed out. Nothing was changed.
var ErrInUse = errors.New("the table is in use")

// inUse adds ErrInUse to the error of a lock timeout.
func inUse(err error) error {
	var refused *pq.Error
	if errors.As(err, &refused) && refused.Code == pqerror.LockNotAvailable {
		return errors.Join(ErrInUse, err)
	}
	return pg.Translate(err)
}

// Log names a table that is partitioned by the month in which its emails were accepted.
type Log string

// The partitioned tables.
const (
	EmailLogs   Log = "email_logs"
	EmailEvents Log = "email_events"
)

// provePartitionSQL reads a default partition that is too large for makePartitionSQL, while other transactions use it. It locks
// the partition for a moment before.
const provePartitionSQL = `SELECT prove_log_partition($1, $2)`

// proofTime is how long reading a default partition may last: at 125 MB/s, 100 GB are read. Like an upload, which may last as
// long, it keeps VACUUM from removing rows that are deleted meanwhile.
const proofTime = 15 * time.Minute

// provePartition runs a step of the proof, and reports whether there is another one. A step that takes longer than other
// statements may is run again on a connection of its own. The others use the pool, also if the server has no free connection.
func (s *Store) provePartition(ctx context.Context, log Log, monthsAhead int) (more bool, err error) {
	err = s.db.GetContext(ctx, &more, provePartitionSQL, string(log), monthsAhead)
	var refused *pq.Error
	if ctx.Err() == nil && errors.As(err, &refused) && refused.Code == pqerror.QueryCanceled {
		err = s.db.InLongTx(ctx, proofTime, func(tx *sqlx.Tx) error {
			return tx.GetContext(ctx, &more, provePartitionSQL, string(log), monthsAhead)
		})
	}
	return more, err
}

// makePartitionSQL locks the log's default partition while it reads it, if that is small. Other transactions can
// still use the log.
const makePartitionSQL = `SELECT coalesce(make_log_partition($1, $2), '')`

// MakeLogPartition creates the first missing partition of the log, for this month and the next
// monthsAhead ones, and returns its name. It returns "" if none is missing or another process is
// creating it, and ErrInUse if it could not take a lock within 200 ms. If the default partition is large, a month
// that has begun gets no partition, and the error says so when the months ahead have theirs.
func (s *Store) MakeLogPartition(ctx context.Context, log Log, monthsAhead int) (name string, err error) {
	for more := true; more && err == nil; {
		more, err = s.provePartition(ctx, log, monthsAhead)
	}
	if err == nil {
		err = s.db.GetContext(ctx, &name, makePartitionSQL, string(log), monthsAhead)
	}
	if err != nil {
		return "", fmt.Errorf("make partition of %s: %w", log, inUse(err))
	}
	return name, nil
}

// missingPartitionsSQL reads the catalog. It locks nothing.
const missingPartitionsSQL = `
SELECT l.log, count(m.utc) AS months
FROM (VALUES ('email_logs'), ('email_events')) AS l (log)
LEFT JOIN (SELECT date_trunc('month', now() AT TIME ZONE 'UTC') + n * interval '1 month' AS utc FROM generate_series(0, 1) n) m
    ON NOT EXISTS (
        SELECT FROM log_partitions p
        WHERE p.log = l.log AND coalesce(p.first_id <= first_id_at(m.utc AT TIME ZONE 'UTC'), true) AND p.end_id > first_id_at(m.utc AT TIME ZONE 'UTC'))
GROUP BY l.log ORDER BY l.log`

// MissingPartitions is for how many of this and the next month a log has no partition.
type MissingPartitions struct {
	Log    Log `db:"log"`
	Months int `db:"months"`
}

// MissingLogPartitions returns the missing months of each log. Rows accepted in a month without a
// partition are in the default partition, which is not dropped by month.
func (s *Store) MissingLogPartitions(ctx context.Context) ([]MissingPartitions, error) {
	var missing []MissingPartitions
	if err := s.db.SelectContext(ctx, &missing, missingPartitionsSQL); err != nil {
		return nil, fmt.Errorf("look for missing partitions: %w", pg.Translate(err))
	}
	return missing, nil
}

// overduePartitionsSQL reads the catalog and company_retention. It locks nothing.
const overduePartitionsSQL = `
SELECT count(*) FROM log_partitions p
WHERE p.log = $1 AND p.end_id <= first_id_at(now() - greatest($2 * interval '1 ms', (SELECT max(logs_days) * interval '1 day' FROM company_retention)))`

// OverdueLogPartitions returns how many partitions of the log DropLogPartition would drop:
// each of their emails was accepted longer ago than age, and than the longest retention of a company.
func (s *Store) OverdueLogPartitions(ctx context.Context, log Log, age time.Duration) (int, error) {
	var overdue int
	if err := s.db.GetContext(ctx, &overdue, overduePartitionsSQL, string(log), age.Milliseconds()); err != nil {
		return 0, fmt.Errorf("look for overdue partitions of %s: %w", log, pg.Translate(err))
	}
	return overdue, nil
}

// dropPartitionSQL locks the log against reads and writes. It looks along
// email_outbox_pkey for emails of that month which are not purged yet.
const dropPartitionSQL = `SELECT name, dropped, moved FROM drop_log_partition($1, $2 * interval '1 ms')`

// DroppedPartition is the result for one partition older than the retention.
type DroppedPartition struct {
	Name    string `db:"name"`
	Dropped bool   `db:"dropped"` // false: too many of its emails are still in the outbox, and no other partition is due
	Moved   int    `db:"moved"`   // rows of such emails, kept in the default partition
}

// DropLogPartition drops the log's oldest partition of which each email was accepted longer ago than age (a day or
// more), and than the longest retention of a company, and few are still in the outbox. It returns the zero
// DroppedPartition if there is none or another process is dropping it, and ErrInUse if it could not take the lock
// within 200 ms.
func (s *Store) DropLogPartition(ctx context.Context, log Log, age time.Duration) (DroppedPartition, error) {
	var found []DroppedPartition
	err := s.db.SelectContext(ctx, &found, dropPartitionSQL, string(log), age.Milliseconds())
	if err != nil || len(found) == 0 {
		if err != nil {
			err = fmt.Errorf("drop partition of %s: %w", log, inUse(err))
		}
		return DroppedPartition{}, err
	}
	return found[0], nil
}
