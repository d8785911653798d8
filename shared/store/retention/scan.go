package retention

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"email-gateway/shared/store/internal/pg"
)

// scanKind is what a scan removes.
type scanKind string

const (
	scanOutbox scanKind = "outbox"
	scanBodies scanKind = "bodies"
	scanLogs   scanKind = "logs"
	scanEvents scanKind = "events"

	scanAggregates scanKind = "aggregates"

	scanEntryValues     scanKind = "entryValues"
	scanEntryHashes     scanKind = "entryHashes"
	scanOutboxHashes    scanKind = "outboxHashes"
	scanRecipientHashes scanKind = "recipientHashes"
)

// Parts of the statements that are steps of a scan.
const (
	// youngest, a retention column of company_retention and ofAll are the first id that is younger
	// than every retention. It is NULL if there is no retention.
	youngest = `first_id_at(now() - least($2 * interval '1 ms', (SELECT min(`
	ofAll    = `) FROM company_retention) * interval '1 day'))`

	// scannedSQL returns the effect of a step: seen are the rows that it read, gone those that it
	// deleted or emptied.
	scannedSQL = `
SELECT (SELECT count(*) FROM seen) AS seen, (SELECT count(*) FROM gone) AS done, (SELECT id FROM seen ORDER BY id DESC LIMIT 1) AS last`
)

// everybody is the company_id of a scan that is not limited to one company.
var everybody = uuid.Nil

// The row of a scan is inserted once, found by primary key, and locked during a step, so that
// only one process at a time makes a step of the scan.
const (
	beginScanSQL = `INSERT INTO retention_walks (kind, company_id) VALUES ($1, $2) ON CONFLICT DO NOTHING`
	holdScanSQL  = `
SELECT reached, begun_at < now() - interval '1 day' AS old FROM retention_walks WHERE kind = $1 AND company_id = $2 FOR UPDATE SKIP LOCKED`
	stepScanSQL = `
UPDATE retention_walks SET reached = $3, begun_at = CASE WHEN $4 THEN now() ELSE begun_at END WHERE kind = $1 AND company_id = $2`
)

// step is the result of one statement of a scan: how many rows it read, how many of them it
// removed, and the last id that it read.
type step struct {
	Seen int           `db:"seen"`
	Done int           `db:"done"`
	Last uuid.NullUUID `db:"last"`
}

// Cleaned is the result of one call of a cleaning method. More: there may be further rows, and the
// method can be called again at once.
type Cleaned struct {
	Count int
	More  bool
}

// scan continues a scan through a table in the order of its ids, at most limit rows, from where it
// stopped last: the rows after that were too young before, since UUIDv7 ids sort by creation time.
// Rows that were read but could not be removed yet are found by a daily scan from the beginning.
//
// statement is a step. Its parameters are the id reached, the age in ms (NULL for age 0, which means
// unlimited), how many rows to read, and the company unless it is everybody. The scan ends at the
// first row that is too young.
func (s *Store) scan(ctx context.Context, kind scanKind, company uuid.UUID, age time.Duration, limit int, statement string) (Cleaned, error) {
	var done Cleaned
	err := s.db.InTx(ctx, func(tx *sqlx.Tx) error {
		if _, err := tx.ExecContext(ctx, beginScanSQL, string(kind), company); err != nil {
			return pg.Translate(err)
		}
		var held []struct {
			Reached uuid.UUID `db:"reached"`
			Old     bool      `db:"old"`
		}
		if err := tx.SelectContext(ctx, &held, holdScanSQL, string(kind), company); err != nil || len(held) == 0 {
			return pg.Translate(err)
		}
		if _, err := tx.ExecContext(ctx, pg.AlongKeySQL); err != nil {
			return pg.Translate(err)
		}
		args := []any{held[0].Reached, milliseconds(age), limit}
		if company != everybody {
			args = append(args, company)
		}
		var did step
		if err := tx.GetContext(ctx, &did, statement, args...); err != nil {
			return pg.Translate(err)
		}
		done = Cleaned{Count: did.Done, More: did.Seen == limit}
		reached := held[0].Reached
		if did.Last.Valid {
			reached = did.Last.UUID
		}
		anew := !done.More && held[0].Old
		if anew {
			reached = uuid.Nil
		}
		if !anew && bytes.Equal(reached[:], held[0].Reached[:]) {
			return nil
		}
		_, err := tx.ExecContext(ctx, stepScanSQL, string(kind), company, reached, anew)
		return pg.Translate(err)
	})
	if err != nil {
		return Cleaned{}, fmt.Errorf("clean %s: %w", kind, err)
	}
	return done, nil
}
