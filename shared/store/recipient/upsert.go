package recipient

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"

	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/internal/pgtext"
	"email-gateway/shared/store/sql"
)

// ErrRefused means that Postgres refuses the row permanently: a retry cannot succeed.
var ErrRefused = errors.New("refused by the database")

// ErrLocked means that another transaction has locked the row. It is unchanged; the caller retries.
var ErrLocked = errors.New("locked by another transaction")

// lockedTime bounds the search for the rows of a batch that another transaction has locked. During the
// search the batch locks no row for longer than pg.PartWait.
const lockedTime = 10 * time.Second

// UpsertRecipients merges accepted imports into recipients and returns a result for each outbox
// id, in the order given: nil (merged, or void because the person was deleted since),
// pg.ErrNotFound (no such import), ErrRefused, or another error of the database, which permits a
// retry. It is idempotent.
//
// One invalid row makes Postgres refuse the whole statement, so a refused batch is halved until
// the invalid row is alone. A batch that waits pg.GroupWait for another transaction's lock is
// written again without the locked rows, for which the result is ErrLocked.
func (s *Store) UpsertRecipients(ctx context.Context, outboxIDs []uuid.UUID) []error {
	sorted := slices.SortedFunc(slices.Values(outboxIDs), func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) })
	u := upsertion{store: s, became: make(map[uuid.UUID]error, len(outboxIDs)), until: time.Now().Add(lockedTime)}
	u.halves(ctx, slices.Compact(sorted), false)
	results := make([]error, len(outboxIDs))
	for i, id := range outboxIDs {
		results[i] = u.became[id]
	}
	return results
}

// upsertion is one batch of imports.
type upsertion struct {
	store  *Store
	became map[uuid.UUID]error
	until  time.Time // the end of the search for locked rows
}

// halves writes the imports, oldest first, and splits the batch if needed. blocked: an earlier attempt timed out
// waiting for another transaction's lock.
func (u upsertion) halves(ctx context.Context, ids []uuid.UUID, blocked bool) {
	if len(ids) == 0 {
		return
	}
	found, err := u.store.upsertIntakes(ctx, ids, blocked)
	if pg.IsLockTimeout(err) && !blocked {
		blocked = true
		found, err = u.store.upsertIntakes(ctx, ids, blocked)
	}
	held := pg.IsLockTimeout(err) && time.Now().Before(u.until)
	if (held || errors.Is(err, ErrRefused)) && len(ids) > 1 {
		u.halves(ctx, ids[:len(ids)/2], blocked)
		u.halves(ctx, ids[len(ids)/2:], blocked)
		return
	}
	if pg.IsLockTimeout(err) {
		err = fmt.Errorf("%w: %w", ErrLocked, err)
	}
	for _, id := range ids {
		if u.became[id] = err; err == nil {
			u.became[id] = pg.ErrNotFound
		}
	}
	for _, row := range found {
		if u.became[row.ID] = nil; !row.Written {
			u.became[row.ID] = fmt.Errorf("upsert recipients: %w", ErrLocked)
		}
	}
}

// upsertScalars are the parameters of the two statements besides the imports' ids.
type upsertScalars struct {
	count int // of the imports
	wait  time.Duration
}

// upsertParameters are the parameters of upsert_recipients.sql and upsert_free_recipients.sql.
var upsertParameters = pg.Parameters[upsertScalars, uuid.UUID]{
	Scalars: []pg.Scalar[upsertScalars]{
		pg.One("lock_timeout", "text", func(s upsertScalars) any { return pg.LockTimeout(s.wait) }),
		pg.One("count", "bigint", func(s upsertScalars) any { return s.count }),
	},
	Columns: []pg.Column[uuid.UUID]{pg.Each("id", "uuid", pg.UUIDs, func(id *uuid.UUID) uuid.UUID { return *id })},
}

// upserted is the result for an import. Written is false if another transaction had locked it.
type upserted struct {
	ID      uuid.UUID `db:"id"`
	Written bool      `db:"written"`
}

// upsertIntakes writes the imports that exist: all of them, or, if blocked, those that are not locked.
func (s *Store) upsertIntakes(ctx context.Context, ids []uuid.UUID, blocked bool) ([]upserted, error) {
	statement, wait := sql.UpsertRecipients, pg.GroupWait
	if blocked {
		statement, wait = sql.UpsertFreeRecipients, pg.PartWait
	}
	found, err := pg.Repeat(func() (found []upserted, err error) {
		err = pg.Write(func(args []any) error {
			found = nil
			return s.db.SelectContext(ctx, &found, statement, args...)
		}, upsertParameters.Arguments(upsertScalars{len(ids), wait}, ids)...)
		return found, err
	})
	if err != nil {
		return nil, fmt.Errorf("upsert recipients: %w", refusal(err))
	}
	return found, nil
}

// refusal marks an error that is caused by a row. An error of class 42 is caused by the statement: it
// is a defect of the program or a missing migration.
func refusal(err error) error {
	var refused *pq.Error
	if pg.IsRefusal(err) && errors.As(err, &refused) && refused.Code.Class() != "42" && refused.Code != pqerror.FeatureNotSupported {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return err
}

// deadLetterImportSQL locks the outbox row and deletes the import's mark in recipient_intakes,
// both by primary key. It does not change an import without a mark, which is dead-lettered or
// written already, or whose person was deleted since. The encrypted number stays in the outbox
// row, for a replay.
const deadLetterImportSQL = `
WITH held AS MATERIALIZED (
    SELECT o.*, ` + IntakeIDSQL + ` AS recipient_id
    FROM email_outbox o WHERE o.id = $1 AND o.target = 'recipients.upsert' AND (SELECT set_config('lock_timeout', $5, true)) IS NOT NULL FOR UPDATE
), failed AS (
    UPDATE email_outbox o SET status = 'FAILED', processed_at = now(), attempts = $4, last_error = $2 || coalesce(': ' || nullif($3, ''), '')
    FROM held h
    WHERE o.id = h.id AND h.status <> 'FAILED'
      AND (h.recipient_id IS NULL OR EXISTS (SELECT FROM recipient_intakes i WHERE i.recipient_id = h.recipient_id AND i.outbox_id = h.id))
    RETURNING o.id, o.company_id, o.payload, h.recipient_id
), gone AS (
    DELETE FROM recipient_intakes i USING failed f WHERE i.recipient_id = f.recipient_id AND i.outbox_id = f.id
)
INSERT INTO dead_letters (id, company_id, outbox_id, target, email, reason, attempts, last_error, payload)
SELECT gen_random_uuid(), company_id, id, 'recipients.upsert', payload ->> 'email', $2, $4, nullif($3, ''), payload FROM failed`

// deadLetterWait is how long DeadLetterImport waits for each lock of another transaction. After a timeout the message of
// the import is retried later, without delaying the batch's other imports.
const deadLetterWait = time.Second

// DeadLetterImport fails an import in one commit: its outbox row becomes FAILED, and a dead letter
// records the cause. reason is a code, detail is human-readable and contains nothing that must not
// be logged. It is idempotent: there is one dead letter.
func (s *Store) DeadLetterImport(ctx context.Context, outboxID uuid.UUID, reason, detail string, attempts int) error {
	_, err := pg.Repeat(func() ([]struct{}, error) {
		_, err := s.db.Exec(ctx, deadLetterImportSQL, outboxID, reason, pgtext.WithoutNUL(detail), attempts, pg.LockTimeout(deadLetterWait))
		return nil, err
	})
	if err != nil {
		return fmt.Errorf("dead-letter recipient import: %w", err)
	}
	return nil
}
