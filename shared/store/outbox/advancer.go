package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/store/internal/pg"
)

// slotWait is how long a claim waits for a connection to be written alone, before its email
// is left for a second: the claims of one company must not hold all workers.
const slotWait = 100 * time.Millisecond

// Advancer applies transitions, many at a time. It does not wait for an email that another
// transaction has locked, nor do the others that are written with that email.
//
// It never waits for a locked outbox row. A locked recipient costs one group pg.GroupWait: most
// locks on recipients are those of our own commits, which are worth waiting for. That group, and
// then for a while every claim of the company, skips locked recipients without a wait,
// however many there are. A transition that waits for another lock is written in a statement of
// its own, a few at a time.
type Advancer struct {
	store *Store
	group *pg.Group[Transition, tried]
	aside *pg.Aside[uuid.UUID] // ids of emails, of their recipients, and of companies
}

// NewAdvancer makes an Advancer on the store's connections.
func (s *Store) NewAdvancer() *Advancer {
	a := &Advancer{store: s, aside: pg.NewAside[uuid.UUID]()}
	a.group = pg.NewGroup(
		func(t Transition) string { return t.ID.String() },
		func(t Transition) int { return 512 + len(t.events) + len(t.ErrorReason) }, // ids and numbers make about half a KiB
		func(ctx context.Context, ts []Transition) ([]tried, error) { return s.advance(ctx, ts, pg.GroupWait) },
	).Parts(a.advancePart).For(s.db.Workers())
	return a
}

// For sets how many goroutines advance emails from now on, see pg.Options.Workers.
func (a *Advancer) For(workers int) { a.group.For(workers) }

// Advance applies one transition. Its errors are the database's; a guard that did
// not hold is Applied == false, and so is an email that is Locked.
func (a *Advancer) Advance(ctx context.Context, t Transition) (Advanced, error) {
	t, err := t.encoded()
	if err != nil {
		return Advanced{}, err
	}
	t.skipLockedPerson = t.Company != uuid.Nil && a.aside.Holds(t.Company)
	keys := []uuid.UUID{t.ID, t.person().ID}
	var done tried
	if a.aside.Holds(keys...) {
		if t.Company != uuid.Nil && !a.aside.TryEnter(slotWait) {
			return Advanced{Locked: true}, nil
		}
		done, err = a.alone(ctx, t)
		if err == nil && !done.Locked {
			a.aside.Remove(keys...)
		}
	} else {
		done, err = a.group.Do(ctx, t)
	}
	switch {
	case pg.IsLockTimeout(err):
		a.aside.Add(append(keys, t.Company)...)
		return Advanced{Locked: true}, nil
	case done.Locked && done.rerun:
		return Advanced{}, fmt.Errorf("advance email: %w", errors.Join(pg.ErrUnknownOutcome, errLockedByRerun))
	case err == nil && done.SameToken && !done.Applied:
		// An earlier run was applied, and its commit may be one that no standby confirmed. What follows from
		// the transition, such as the call of the provider, must not be forgotten by a promoted standby.
		if err := a.store.db.Confirm(ctx); err != nil {
			return Advanced{}, fmt.Errorf("advance email: %w", errors.Join(pg.ErrUnknownOutcome, err))
		}
	}
	return done.Advanced, err
}

// errLockedByRerun: the connection broke, and when the statement was run again on another
// one, a transaction had locked the row, which may be that of the first run.
var errLockedByRerun = errors.New("the connection broke, and the email is locked")

// advancePart writes a group again that waited for a lock, or a part of it, without the emails
// whose recipients are locked. For a while the next claims of their companies skip locked
// recipients at once. What these skip does not prolong that: it may be locked by our own
// commits, which are worth waiting for.
func (a *Advancer) advancePart(ctx context.Context, ts []Transition) ([]tried, error) {
	for i := range ts {
		ts[i].skipLockedPerson = true
	}
	results, err := a.store.advance(ctx, ts, pg.PartWait)
	if err != nil {
		return nil, err
	}
	for i, r := range results {
		if r.Locked {
			a.aside.Add(ts[i].Company)
		}
	}
	return results, nil
}

// alone writes one email that a lock held up a moment ago. A claim has entered already.
func (a *Advancer) alone(ctx context.Context, t Transition) (tried, error) {
	if t.Company == uuid.Nil {
		if err := a.aside.Enter(ctx); err != nil {
			return tried{}, err
		}
	}
	defer a.aside.Leave()
	results, err := pg.Repeat(func() ([]tried, error) { return a.store.advance(ctx, []Transition{t}, pg.PartWait) })
	if err != nil {
		return tried{}, err
	}
	return results[0], nil
}

// Close waits for the groups in flight.
func (a *Advancer) Close() { a.group.Wait() }
