package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/store/internal/pg"
)

// slotWait is how long a claim waits for a slot to be written alone. After that its email is reported as Locked, so
// that the claims of one company do not occupy all workers.
const slotWait = 100 * time.Millisecond

// Advancer applies transitions in groups. It never waits for an outbox row that another transaction has locked.
//
// A locked recipient delays one group by pg.GroupWait: most locks on recipients are held by commits of this system,
// which take less time. That group, and for pg.LockedKeyTime every further claim of the company, then skips locked
// recipients without waiting. A transition that timed out on another lock is written in its own statement; only a few
// of these run at the same time.
type Advancer struct {
	store  *Store
	group  *pg.Group[Transition, Advanced]
	locked *pg.LockedKeys[uuid.UUID] // ids of emails, of their recipients, and of companies
}

// NewAdvancer returns an Advancer on the store's connections.
func (s *Store) NewAdvancer() *Advancer {
	a := &Advancer{store: s, locked: pg.NewLockedKeys[uuid.UUID]()}
	a.group = pg.NewGroup(
		func(t Transition) string { return t.ID.String() },
		func(t Transition) int { return 512 + len(t.events) + len(t.ErrorReason) }, // ids and numbers make about half a KiB
		func(ctx context.Context, ts []Transition) ([]Advanced, error) {
			return s.advance(ctx, ts, pg.GroupWait)
		},
	).SplitWith(a.advancePart).SetWorkers(s.db.Workers())
	return a
}

// For sets how many goroutines advance emails from now on, see pg.Options.Workers.
func (a *Advancer) For(workers int) { a.group.SetWorkers(workers) }

// Advance applies one transition. Its errors are the database's. If the guard does not match, or the email is Locked,
// the error is nil and Applied is false.
func (a *Advancer) Advance(ctx context.Context, t Transition) (Advanced, error) {
	t, err := t.encoded()
	if err != nil {
		return Advanced{}, err
	}
	t.skipLockedRecipient = t.Company != uuid.Nil && a.locked.Contains(t.Company)
	keys := []uuid.UUID{t.ID, t.recipient().ID}
	var done Advanced
	if a.locked.Contains(keys...) {
		if t.Company != uuid.Nil && !a.locked.TryEnter(slotWait) {
			return Advanced{Locked: true}, nil
		}
		done, err = a.advanceOne(ctx, t)
		if err == nil && !done.Locked {
			a.locked.Remove(keys...)
		}
	} else {
		done, err = a.group.Do(ctx, t)
	}
	switch {
	case pg.IsLockTimeout(err):
		a.locked.Add(append(keys, t.Company)...)
		return Advanced{Locked: true}, nil
	case done.Locked && done.Rerun:
		return Advanced{}, fmt.Errorf("advance email: %w", errors.Join(pg.ErrUnknownOutcome, errLockedByRerun))
	case err == nil && done.SameToken && !done.Applied:
		// An earlier run of this statement was applied, but possibly no standby has confirmed its commit. The caller
		// must not act on it, such as by calling the provider, while a promoted standby could lack it.
		if err := a.store.db.Confirm(ctx); err != nil {
			return Advanced{}, fmt.Errorf("advance email: %w", errors.Join(pg.ErrUnknownOutcome, err))
		}
	}
	return done, err
}

// errLockedByRerun: the connection broke, database/sql ran the statement again on another one, and a transaction had
// locked the row: possibly that of the first run.
var errLockedByRerun = errors.New("the connection broke, and the email is locked")

// advancePart writes a group, or a part of one, that timed out on a lock. It skips the emails whose recipients are
// locked, and makes further claims of their companies skip locked recipients for pg.LockedKeyTime. A recipient that such a
// claim skips does not extend this time: its lock may be held by a commit of this system, which is worth waiting for.
func (a *Advancer) advancePart(ctx context.Context, ts []Transition) ([]Advanced, error) {
	for i := range ts {
		ts[i].skipLockedRecipient = true
	}
	results, err := a.store.advance(ctx, ts, pg.PartWait)
	if err != nil {
		return nil, err
	}
	for i, r := range results {
		if r.Locked {
			a.locked.Add(ts[i].Company)
		}
	}
	return results, nil
}

// advanceOne writes one email that a lock delayed a moment ago. For a claim, the caller has taken the slot already.
func (a *Advancer) advanceOne(ctx context.Context, t Transition) (Advanced, error) {
	if t.Company == uuid.Nil {
		if err := a.locked.Enter(ctx); err != nil {
			return Advanced{}, err
		}
	}
	defer a.locked.Leave()
	results, err := pg.Repeat(func() ([]Advanced, error) { return a.store.advance(ctx, []Transition{t}, pg.PartWait) })
	if err != nil {
		return Advanced{}, err
	}
	return results[0], nil
}

// Close waits for the groups in flight.
func (a *Advancer) Close() { a.group.Wait() }
