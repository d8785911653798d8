package store

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"email-gateway/shared/store/internal/pg"
)

// walkKind is what is taken away on a walk.
type walkKind string

const (
	walkOutbox walkKind = "outbox"
	walkBodies walkKind = "bodies"
	walkLogs   walkKind = "logs"
	walkEvents walkKind = "events"

	walkAggregates walkKind = "aggregates"

	walkEntryValues     walkKind = "entryValues"
	walkEntryHashes     walkKind = "entryHashes"
	walkOutboxHashes    walkKind = "outboxHashes"
	walkRecipientHashes walkKind = "recipientHashes"
)

// Parts of the statements that are steps of a walk.
const (
	// No row from there on, with one of the ages' columns between the two, is past anybody's
	// age. NULL: nobody has one.
	youngest = `first_id_at(now() - least($2 * interval '1 ms', (SELECT min(`
	ofAll    = `) FROM company_retention) * interval '1 day'))`

	// walkedSQL says what a step has done: seen are the rows that it looked at, gone those
	// that it took away or emptied.
	walkedSQL = `
SELECT (SELECT count(*) FROM seen) AS seen, (SELECT count(*) FROM gone) AS done, (SELECT id FROM seen ORDER BY id DESC LIMIT 1) AS last`
)

// everybody stands for the companies that have no age of their own.
var everybody = uuid.Nil

// The row of a walk is made once, found by primary key, and held while one goes on:
// another process that would go on finds nothing to do.
const (
	beginWalkSQL = `INSERT INTO retention_walks (kind, company_id) VALUES ($1, $2) ON CONFLICT DO NOTHING`
	holdWalkSQL  = `
SELECT reached, begun_at < now() - interval '1 day' AS old FROM retention_walks WHERE kind = $1 AND company_id = $2 FOR UPDATE SKIP LOCKED`
	stepWalkSQL = `
UPDATE retention_walks SET reached = $3, begun_at = CASE WHEN $4 THEN now() ELSE begun_at END WHERE kind = $1 AND company_id = $2`
)

// step is what one statement of a walk has done: it looked at so many rows, up to the
// last one, and has taken away what was past its time.
type step struct {
	Seen int           `db:"seen"`
	Done int           `db:"done"`
	Last uuid.NullUUID `db:"last"`
}

// Cleaned is what one call of a cleaning method has done. More: it did not come to the
// end, and may be called again at once.
type Cleaned struct {
	Count int
	More  bool
}

// walk goes on through a table in the order of its ids, at most limit rows, from where it
// stopped last: what is ahead has not come to its time before, since ids are as old as
// they are great. What it passes by because it was not past its time then, a daily walk
// from the beginning finds. So each row is looked at once when its time comes, and only
// the few that are left behind once a day.
//
// statement is a step: it takes the id reached, the age in ms (NULL where age is 0, which
// is for ever), how many rows to look at, and the company unless it is everybody. Rows too
// young end the walk.
func (s *Store) walk(ctx context.Context, kind walkKind, company uuid.UUID, age time.Duration, limit int, statement string) (Cleaned, error) {
	var done Cleaned
	err := s.db.InTx(ctx, func(tx *sqlx.Tx) error {
		if _, err := tx.ExecContext(ctx, beginWalkSQL, string(kind), company); err != nil {
			return pg.Translate(err)
		}
		var held []struct {
			Reached uuid.UUID `db:"reached"`
			Old     bool      `db:"old"`
		}
		if err := tx.SelectContext(ctx, &held, holdWalkSQL, string(kind), company); err != nil || len(held) == 0 {
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
		_, err := tx.ExecContext(ctx, stepWalkSQL, string(kind), company, reached, anew)
		return pg.Translate(err)
	})
	if err != nil {
		return Cleaned{}, fmt.Errorf("clean %s: %w", kind, err)
	}
	return done, nil
}
