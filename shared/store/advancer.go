package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/store/internal/pg"
)

const (
	// lockWait is how long a group waits for a lock of another transaction. Our own hold
	// theirs for one commit.
	lockWait = 200 * time.Millisecond
	// partWait is the wait of a group that waited lockWait and is written again, of its parts,
	// and of an email that is written alone because it waited. A group of 256 with one email
	// that still waits makes nine of these waits.
	partWait = 20 * time.Millisecond
	// slotWait is how long a claim waits for a connection to be written alone, before its email
	// is left for a second: the claims of one company must not hold all workers.
	slotWait = 100 * time.Millisecond
)

// Advancer applies transitions, many at a time. It does not wait for an email that another
// transaction has locked, nor do the others that are written with that email.
//
// It never waits for a locked outbox row. A locked recipient costs one group lockWait: most
// locks on recipients are those of our own commits, which are worth waiting for. That group, and
// then for a while every claim of the company, skips locked recipients without a wait,
// however many there are. A transition that waits for another lock is written in a statement of
// its own, a few at a time.
type Advancer struct {
	store *Store
	group *pg.Group[Transition, tried]
	aside *aside[uuid.UUID] // ids of emails, of their recipients, and of companies
}

// NewAdvancer makes an Advancer on the store's connections.
func (s *Store) NewAdvancer() *Advancer {
	a := &Advancer{store: s, aside: newAside[uuid.UUID]()}
	a.group = pg.NewGroup(
		func(t Transition) string { return t.ID.String() },
		func(t Transition) int { return 512 + len(t.events) + len(t.ErrorReason) }, // ids and numbers make about half a KiB
		func(ctx context.Context, ts []Transition) ([]tried, error) { return s.advance(ctx, ts, lockWait) },
	).Parts(a.advancePart).For(s.db.Workers())
	return a
}

// For sets how many goroutines advance emails from now on, see Options.Hands.
func (a *Advancer) For(hands int) { a.group.For(hands) }

// Advance applies one transition. Its errors are the database's; a guard that did
// not hold is Applied == false, and so is an email that is Locked.
func (a *Advancer) Advance(ctx context.Context, t Transition) (Advanced, error) {
	t, err := t.encoded()
	if err != nil {
		return Advanced{}, err
	}
	t.skipLockedPerson = t.Company != uuid.Nil && a.aside.holds(t.Company)
	keys := []uuid.UUID{t.ID, t.person().ID}
	var done tried
	if a.aside.holds(keys...) {
		if t.Company != uuid.Nil && !a.aside.tryEnter(slotWait) {
			return Advanced{Locked: true}, nil
		}
		done, err = a.alone(ctx, t)
		if err == nil && !done.Locked {
			a.aside.remove(keys...)
		}
	} else {
		done, err = a.group.Do(ctx, t)
	}
	switch {
	case pg.IsLockTimeout(err):
		a.aside.add(append(keys, t.Company)...)
		return Advanced{Locked: true}, nil
	case done.Locked && done.rerun:
		return Advanced{}, fmt.Errorf("advance email: %w", errors.Join(pg.ErrUnknownOutcome, errLockedByRerun))
	case err == nil && done.SameToken && !done.Applied:
		// An earlier run was applied, and its commit may be one that no standby confirmed. What follows from
		// the transition, such as the call of the provider, must not be forgotten by a promoted standby.
		if err := a.store.Confirm(ctx); err != nil {
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
	results, err := a.store.advance(ctx, ts, partWait)
	if err != nil {
		return nil, err
	}
	for i, r := range results {
		if r.Locked {
			a.aside.add(ts[i].Company)
		}
	}
	return results, nil
}

// alone writes one email that a lock held up a moment ago. A claim has entered already.
func (a *Advancer) alone(ctx context.Context, t Transition) (tried, error) {
	if t.Company == uuid.Nil {
		if err := a.aside.enter(ctx); err != nil {
			return tried{}, err
		}
	}
	defer a.aside.leave()
	results, err := pg.Repeat(func() ([]tried, error) { return a.store.advance(ctx, []Transition{t}, partWait) })
	if err != nil {
		return tried{}, err
	}
	return results[0], nil
}

// Close waits for the groups in flight.
func (a *Advancer) Close() { a.group.Wait() }
