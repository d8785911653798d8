package outbox

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"email-gateway/shared/store/internal/pg"
)

// AdvanceAll applies transitions of different emails of one company in one commit, and returns their results in order.
// The caller passes them sorted by id, the order in which all transactions lock emails, so that two cannot deadlock. It
// is for requests whose client waits. A program's open transaction may hold an email for any length of time: AdvanceAll
// returns ErrAggregateBusy after LockWait (4 s), or pg.ErrBusy at once if too many other requests wait already. Nothing
// was changed then.
func (s *Store) AdvanceAll(ctx context.Context, company uuid.UUID, ts []Transition) ([]Advanced, error) {
	encoded, err := encodeAll(ts)
	if err != nil || len(ts) == 0 {
		return nil, err
	}
	all, err := pg.InBoundedTx(ctx, s.db, pg.HeldRow{Company: company, Name: ts[0].ID.String()}, func(tx *sqlx.Tx, wait time.Duration) (all []Advanced, err error) {
		for some := range slices.Chunk(encoded, pg.GroupRows) {
			done, err := advanceAllIn(ctx, tx, some, wait)
			if err != nil {
				return nil, err
			}
			all = append(all, done...)
		}
		return all, nil
	})
	return all, AsAggregateBusy(err)
}

// AsAggregateBusy converts a lock timeout to ErrAggregateBusy.
func AsAggregateBusy(err error) error {
	if pg.IsLockTimeout(err) && !errors.Is(err, pg.ErrBusy) {
		return errors.Join(ErrAggregateBusy, err)
	}
	return err
}
