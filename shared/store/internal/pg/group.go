package pg

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
)

// Limits of one group. 256 rows fill a commit well on a small machine. 1 MiB prevents a group of large bodies from
// delaying small items.
const (
	GroupRows  = 256
	GroupBytes = 1 << 20
	// Two groups run at a time: while one waits for its commit, the next one is built. More than two gain nothing on
	// few cores and make the groups smaller.
	groupsInFlight = 2
	// The second group begins when groupJoin items wait, or when items have waited joinWait for the first group,
	// which may be waiting for a lock. When it began at once, emails that 64 goroutines sent cost Postgres 397 µs each,
	// and now 209 (bench --section send).
	groupJoin = 32
	joinWait  = 10 * time.Millisecond
	// Per goroutine that loads and advances emails one by one: the flush delay, with its maximum, and how many items
	// (in eighths) end the delay early. 256 goroutines that have each email for 70 ms anyway cost Postgres 190 µs per
	// email with 8 µs and 32 items, and 148 µs with 24 µs and these values. 64 goroutines wrote 1,000 emails in 232 and
	// 288 transactions with 24 µs each, and write them in 175 (bench --section mailing).
	flushDelayPerWorker = 150 * time.Microsecond
	maxFlushDelay       = 8 * time.Millisecond
	joinPerWorker       = 3
	groupTimeout        = 30 * time.Second
	// GroupWait is how long a group waits for a lock of another transaction. This system's own transactions hold such
	// locks for one commit.
	GroupWait = 200 * time.Millisecond
	// PartWait is the lock wait of a group that is written again after GroupWait, of its parts, and of an email that is
	// written alone because it waited. In a group of 256, one email that stays locked causes nine of these waits.
	PartWait = 20 * time.Millisecond
	// maxTries limits the runs of a write that loses races. Each lost race means that another write has succeeded.
	maxTries = 5
)

// Group combines rows that many goroutines write at the same time into one statement and one commit. Each caller gets
// the result of its own row. An idle group flushes immediately; the flush delay applies only for a moment after another
// flush.
type Group[T, R any] struct {
	// Rows are written in the order of their keys, so that two groups cannot deadlock. A group has no two rows with the
	// same key, so that the second one sees the effect of the first.
	key   func(T) string
	size  func(T) int // bytes
	write func(context.Context, []T) ([]R, error)
	// parts writes a group, and then its parts, after another transaction's lock has delayed it; nil = use write.
	parts func(context.Context, []T) ([]R, error)
	// owner is the company of an item; nil = all items are treated alike.
	owner func(T) uuid.UUID

	mu         sync.Mutex
	waiting    []*groupItem[T, R]
	inFlight   int           // running statements
	join       int           // number of items that start a second statement or end the flush delay
	flushDelay time.Duration // from a flush to the next one
	lastFlush  time.Time     // end of the last flush
	due        time.Time     // when the flush timer fires; zero = no timer is set
	done       sync.WaitGroup
	owners     map[uuid.UUID]int // how many items of each company wait
	first      uuid.UUID         // the company that the last group began with
}

type groupItem[T, R any] struct {
	value  T
	key    string
	owner  uuid.UUID
	size   int
	taken  bool // into a group
	result R
	err    error
	ready  chan struct{}
}

// NewGroup returns a Group that writes items with write, which returns one result per item in the given order.
func NewGroup[T, R any](key func(T) string, size func(T) int, write func(context.Context, []T) ([]R, error)) *Group[T, R] {
	return &Group[T, R]{key: key, size: size, write: write, join: groupJoin}
}

// SplitWith sets how a group is written after another transaction's lock has delayed it, first as a whole and then in
// parts: with a shorter lock timeout, since most of its items are not locked.
func (g *Group[T, R]) SplitWith(write func(context.Context, []T) ([]R, error)) *Group[T, R] {
	g.parts = write
	return g
}

// FairBy makes a group take one item of each company in turn.
func (g *Group[T, R]) FairBy(owner func(T) uuid.UUID) *Group[T, R] {
	g.owner = owner
	return g
}

// SetWorkers sets the flush delay in proportion to the number of goroutines that call Do, up to maxFlushDelay. It is
// for goroutines whose calls are not urgent: without a delay, emails are loaded in groups of five, and each group costs as
// much as three more rows. It may be called at any time.
func (g *Group[T, R]) SetWorkers(workers int) *Group[T, R] {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.flushDelay = min(time.Duration(workers)*flushDelayPerWorker, maxFlushDelay)
	g.join = max(groupJoin, workers*joinPerWorker/8)
	return g
}

// Do writes one item and returns its result. If ctx ends before the group of the item is written, the item is not
// written. If ctx ends later, the error is ErrUnknownOutcome, and a caller that needs the outcome must query the
// database.
func (g *Group[T, R]) Do(ctx context.Context, value T) (R, error) {
	item := &groupItem[T, R]{value: value, key: g.key(value), size: g.size(value), ready: make(chan struct{})}
	if g.owner != nil {
		item.owner = g.owner(value)
	}
	g.mu.Lock()
	g.waiting = append(g.waiting, item)
	g.count(item, 1)
	g.launch(false)
	g.mu.Unlock()

	select {
	case <-item.ready:
		return item.result, item.err
	case <-ctx.Done():
	}
	var none R
	if g.withdraw(item) {
		return none, context.Cause(ctx)
	}
	return none, errors.Join(ErrUnknownOutcome, context.Cause(ctx))
}

// launch starts a flush of the waiting items, or a timer for it. overdue: the timer has fired. g.mu is held.
func (g *Group[T, R]) launch(overdue bool) {
	switch early := g.flushDelay - time.Since(g.lastFlush); {
	case len(g.waiting) == 0 || g.inFlight == groupsInFlight:
	case overdue || len(g.waiting) >= g.join || g.inFlight == 0 && early <= 0:
		g.inFlight++
		g.done.Add(1)
		go g.flush()
	case g.inFlight == 0:
		g.setTimer(early)
	default:
		g.setTimer(joinWait)
	}
}

// setTimer sets a timer that flushes, unless an earlier one is set. g.mu is held.
func (g *Group[T, R]) setTimer(wait time.Duration) {
	due := time.Now().Add(wait)
	if !g.due.IsZero() && !due.Before(g.due) {
		return
	}
	g.due = due
	time.AfterFunc(wait, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.due.Equal(due) {
			g.due = time.Time{}
			g.launch(true)
		}
	})
}

// withdraw removes an item from the queue and reports whether it was still there.
func (g *Group[T, R]) withdraw(item *groupItem[T, R]) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.Index(g.waiting, item)
	if i < 0 {
		return false
	}
	g.waiting = slices.Delete(g.waiting, i, i+1)
	g.count(item, -1)
	return true
}

// Wait returns when no statement is running.
func (g *Group[T, R]) Wait() { g.done.Wait() }

// flush writes groups until no item waits.
func (g *Group[T, R]) flush() {
	defer g.done.Done()
	for first := true; ; first = false {
		group := g.take(first)
		if group == nil {
			return
		}
		slices.SortFunc(group, func(a, b *groupItem[T, R]) int { return cmp.Compare(a.key, b.key) })
		g.resolve(group, false)
	}
}

// take removes the next group from the queue. It ends the flush if the queue is empty, or has too few items for another
// group.
func (g *Group[T, R]) take(first bool) []*groupItem[T, R] {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.waiting) == 0 || !first && (g.inFlight > 1 || g.flushDelay > 0) && len(g.waiting) < g.join {
		g.inFlight--
		g.lastFlush = time.Now()
		g.launch(false)
		return nil
	}
	group := g.pick()
	g.due = time.Time{} // the timer was for this group
	g.launch(false)
	return group
}

// resolve writes a group and returns the results to its callers. Postgres refuses the whole statement because of one
// bad row, and one row that waits for another transaction's lock delays the statement. resolve halves such a group
// until that row is alone. blocked: a lock has delayed the group before.
func (g *Group[T, R]) resolve(group []*groupItem[T, R], blocked bool) {
	write := g.write
	if blocked {
		write = g.parts
	}
	results, err := g.attempt(group, write)
	if IsLockTimeout(err) && !blocked && g.parts != nil {
		blocked = true
		results, err = g.attempt(group, g.parts)
	}
	if len(group) > 1 && (IsRefusal(err) || IsLockTimeout(err)) {
		g.resolve(group[:len(group)/2], blocked)
		g.resolve(group[len(group)/2:], blocked)
		return
	}
	for i, item := range group {
		if item.err = err; err == nil {
			item.result = results[i]
		}
		close(item.ready)
	}
}

func (g *Group[T, R]) attempt(group []*groupItem[T, R], write func(context.Context, []T) ([]R, error)) ([]R, error) {
	ctx, cancel := context.WithTimeout(context.Background(), groupTimeout)
	defer cancel()
	values := make([]T, len(group))
	for i, item := range group {
		values[i] = item.value
	}
	results, err := Repeat(func() ([]R, error) { return write(ctx, values) })
	if err == nil && len(results) != len(values) {
		return nil, errors.New("group: one result per item expected")
	}
	return results, err
}

// Repeat runs a write again, at most maxTries times in all, if it loses a race with another transaction.
func Repeat[R any](write func() ([]R, error)) ([]R, error) {
	for try := 1; ; try++ {
		results, err := write()
		if !isRepeatable(err) || try == maxTries {
			return results, err
		}
	}
}
