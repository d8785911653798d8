package pg

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"
)

// lockedUntil is a transaction that waits for a lock which another one holds until then.
func lockedUntil(free time.Time) func(time.Duration) error {
	return func(wait time.Duration) error {
		<-time.After(max(min(wait, time.Until(free)), 0))
		if time.Now().Before(free) {
			return &pq.Error{Code: pqerror.LockNotAvailable}
		}
		return nil
	}
}

// Companies whose rows are held for long do not delay another company, however many they are and however many requests they send.
func TestCompanyLocks_HeldRowsOfOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, free := newCompanyLocks(), time.Now().Add(time.Minute)
		var waiting, most atomic.Int64
		held := func(wait time.Duration) error {
			most.Store(max(most.Load(), waiting.Add(1)))
			defer waiting.Add(-1)
			return lockedUntil(free)(wait)
		}
		for n := range 40 {
			company := uuid.UUID{1, byte(n)}
			for range 3 {
				go func() {
					for time.Now().Before(free.Add(-5 * time.Second)) {
						start := time.Now()
						if err := l.run(t.Context(), company, time.Second, held); !errors.Is(err, ErrBusy) || IsLockTimeout(err) {
							t.Errorf("held row: %v", err)
						}
						if took := time.Since(start); took > 2*time.Second {
							t.Errorf("a request of a held row was answered after %s", took)
						}
					}
				}()
			}
		}
		<-time.After(2 * time.Second) // each company has met its held row
		var total time.Duration
		for range 100 {
			start := time.Now()
			if err := l.run(t.Context(), uuid.UUID{2}, time.Second, lockedUntil(time.Time{})); err != nil {
				t.Fatal(err)
			}
			total += time.Since(start)
			<-time.After(50 * time.Millisecond)
		}
		if average := total / 100; average > 20*time.Millisecond {
			t.Errorf("another company waits %s on average", average)
		}
		if most.Load() > companyTries+lockedKeySlots {
			t.Errorf("%d transactions wait for locks at once", most.Load())
		}
		<-time.After(time.Until(free))
	})
}

// The transactions of one company wait for each other without a try, for longest at most, and after a held row is free again the
// first transaction succeeds.
func TestCompanyLocks_OneTransactionPerCompany(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, start := newCompanyLocks(), time.Now()
		var running, refused atomic.Int64
		for range 10 {
			go func() {
				err := l.run(t.Context(), uuid.UUID{1}, time.Second, func(wait time.Duration) error {
					if running.Add(1) > 1 {
						t.Error("two transactions at once")
					}
					defer running.Add(-1)
					return lockedUntil(start.Add(3 * time.Second))(wait)
				})
				if !errors.Is(err, ErrBusy) {
					t.Errorf("held row: %v", err)
				}
				refused.Add(1)
			}()
		}
		<-time.After(1100 * time.Millisecond)
		if refused.Load() != 10 || len(l.turns) != 0 || len(l.tries) != 0 {
			t.Errorf("%d are answered after %s; %d turns, %d tries", refused.Load(), time.Since(start), len(l.turns), len(l.tries))
		}
		<-time.After(time.Until(start.Add(2900 * time.Millisecond)))
		if err := l.run(t.Context(), uuid.UUID{1}, time.Second, lockedUntil(start.Add(3*time.Second))); err != nil || time.Since(start) > 3*time.Second {
			t.Errorf("free again: %v, after %s", err, time.Since(start))
		}
		if l.held.Contains(uuid.UUID{1}) {
			t.Error("the row still counts as held")
		}
	})
}
