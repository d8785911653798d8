package attachment

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
)

const (
	smallFile = 1 << 20
	largeFile = 10 << 20 // the largest that an email may have
)

// pause advances the time of a synctest bubble.
func pause(d time.Duration) { <-time.After(d) }

// load sends emails of one company through a budget, like the worker and the outbox: refused ones come back.
type load struct {
	budget  *budget
	pacing  *pacing
	company uuid.UUID
	sent    atomic.Int64
	running sync.WaitGroup
}

// loads are those of three companies.
func loads() (all [3]*load) {
	b, pacing := newBudget(func() int { return 50 }), newPacing()
	for i := range all {
		all[i] = &load{budget: b, pacing: pacing, company: uuid.New()}
	}
	return all
}

// send sends one email, which takes the time, and returns how often it was refused.
func (l *load) send(ctx context.Context, size int64, takes time.Duration) (refused int) {
	for owner := uuid.New(); ctx.Err() == nil; refused++ {
		release, err := l.budget.acquire(ctx, l.company, owner, attached(size))
		switch {
		case err == nil:
			gone := l.pacing.start(lane{company: l.company}, time.Now())
			pause(takes)
			release()
			gone(time.Now())
			l.sent.Add(1)
			return refused
		case errors.Is(err, errReserved):
			pause(minDelay)
		default:
			pause(l.pacing.delay(lane{company: l.company}, time.Now()))
		}
	}
	return refused
}

// flow sends small emails for ever: more than the budget has room for.
func (l *load) flow(ctx context.Context, takes time.Duration) {
	for range 24 {
		l.running.Go(func() {
			for ctx.Err() == nil {
				l.send(ctx, smallFile, takes)
			}
		})
		pause(takes / 24) // the room is never free all at once
	}
}

// A steady flow of small emails, of another company or the same one, does not keep out the largest email.
func TestReservations_LargeEmail(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		same  bool
		takes time.Duration
	}{
		"another company":        {false, 500 * time.Millisecond},
		"another company, slow":  {false, 20 * time.Second}, // longer than an email waits with a reservation
		"the same company":       {true, 500 * time.Millisecond},
		"the same company, slow": {true, 20 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				all := loads()
				small, other, large := all[0], all[1], all[2]
				if c.same {
					large.company = small.company
				}
				other.flow(ctx, c.takes)
				small.flow(ctx, c.takes)
				pause(5 * c.takes)
				before, start := small.sent.Load(), time.Now()
				limited, stop := context.WithTimeout(ctx, 50*c.takes)
				defer stop()
				refused := large.send(limited, largeFile, c.takes)
				during, took := small.sent.Load()-before, time.Since(start)
				t.Logf("sent after %d refusals, %d small emails and %v", refused, during, took)
				if during > 200 || took > 40*c.takes {
					t.Errorf("the large email was sent after %d small ones and %v", during, took)
				}
				cancel()
				small.running.Wait()
				other.running.Wait()
			})
		})
	}
}

// A company with many large emails does not keep out the emails of another one, small or large.
func TestReservations_Companies(t *testing.T) {
	t.Parallel()
	for name, size := range map[string]int64{"small": smallFile, "large": largeFile} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				all := loads()
				many, one := all[0], all[1]
				for range 100 {
					many.running.Go(func() { many.send(ctx, largeFile, time.Second) })
				}
				pause(10 * time.Second)
				for range 5 {
					before, start := many.sent.Load(), time.Now()
					one.send(ctx, size, time.Second)
					during, took := many.sent.Load()-before, time.Since(start)
					t.Logf("sent after %d large emails and %v", during, took)
					if during > 10 {
						t.Errorf("it was sent after %d emails of another company", during)
					}
				}
				cancel()
				many.running.Wait()
			})
		})
	}
}

// starve refuses an email for so long that its next try reserves room.
func starve(t *testing.T, b *budget, company, owner uuid.UUID) {
	t.Helper()
	for range 2 {
		if _, err := b.acquire(t.Context(), company, owner, attached(largeFile)); !errors.Is(err, errBusy) {
			t.Fatalf("the large email: %v", err)
		}
		pause(starvedAfter / 2)
	}
}

// Emails that fit beside the reserved room are admitted, others are not. An email that does not come back blocks others only
// until returnTime is over, and not at all if its task ends.
func TestReservations_Vanished(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBudget(func() int { return 50 })
		try := func(size int64) error {
			release, err := b.acquire(t.Context(), uuid.New(), uuid.New(), attached(size))
			if err == nil {
				release()
			}
			return err
		}
		used, err := b.acquire(t.Context(), uuid.New(), uuid.New(), attached(smallFile))
		if err != nil {
			t.Fatal(err)
		}
		company, owner := uuid.New(), uuid.New()
		starve(t, b, company, owner)
		if err := try(smallFile); err != nil {
			t.Errorf("a postponed email without a reservation keeps out others: %v", err)
		}

		stopped, stop := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, stop)
		if _, err := b.acquire(stopped, company, owner, attached(largeFile)); !errors.Is(err, errBusy) {
			t.Errorf("an email whose task ends: %v", err)
		}
		if err := try(smallFile); err != nil {
			t.Errorf("an email whose task has ended keeps out others: %v", err)
		}

		ended := make(chan error)
		go func() {
			_, err := b.acquire(t.Context(), company, owner, attached(largeFile))
			ended <- err
		}()
		synctest.Wait()
		if err := try(smallFile); !errors.Is(err, errBusy) {
			t.Errorf("an email that takes reserved room: %v", err)
		}
		if err := <-ended; !errors.Is(err, errReserved) {
			t.Errorf("an email that has reserved room: %v", err)
		}
		if err := try(smallFile); !errors.Is(err, errBusy) {
			t.Errorf("an email that takes room reserved for a postponed one: %v", err)
		}
		used() // 4 MiB are not reserved
		if err := try(smallFile / 2); err != nil {
			t.Errorf("an email that fits beside the reserved room: %v", err)
		}
		pause(returnTime)
		if err := try(smallFile); err != nil {
			t.Errorf("an email that has not come back keeps out others: %v", err)
		}
		if release, err := b.acquire(t.Context(), company, owner, attached(largeFile)); err != nil {
			t.Error(err)
		} else {
			release()
		}
		if b.used != 0 || b.count != 0 || b.waiting != 0 || len(b.own) != 0 || len(b.reserved.refused) != 2 || b.reserved.holder != nil {
			t.Errorf("in use: %+v", b)
		}
		pause(2 * rememberTime)
		starve(t, full(t, b), company, owner)
		if n := len(b.reserved.refused); n != 1 {
			t.Errorf("emails of %d companies are remembered", n)
		}
	})
}

// full uses all of the budget.
func full(t *testing.T, b *budget) *budget {
	t.Helper()
	if _, err := b.acquire(t.Context(), uuid.New(), uuid.New(), attached(budgetBytes)); err != nil {
		t.Fatal(err)
	}
	return b
}

// A company's starved emails wait for its own part without keeping out other companies.
func TestReservations_OwnPart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBudget(func() int { return 50 })
		company, owner := uuid.New(), uuid.New()
		for range 8 { // 48 MiB, all of the company's part
			if _, err := b.acquire(t.Context(), company, uuid.New(), attached(smallFile)); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			if _, err := b.acquire(t.Context(), company, owner, attached(smallFile)); !errors.Is(err, errBusy) {
				t.Fatal(err)
			}
			pause(starvedAfter / 2)
		}
		var waiting sync.WaitGroup
		waiting.Go(func() { _, _ = b.acquire(t.Context(), company, owner, attached(smallFile)) })
		synctest.Wait()
		if b.reserved.holder == nil {
			t.Fatal("the starved email has no reservation")
		}
		for range 2 { // 12 of the 16 MiB that the company leaves to others
			if _, err := b.acquire(t.Context(), uuid.New(), uuid.New(), attached(smallFile)); err != nil {
				t.Errorf("another company's email: %v", err)
			}
		}
		waiting.Wait()
	})
}
