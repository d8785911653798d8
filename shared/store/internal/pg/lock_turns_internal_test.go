package pg

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"
)

// Two companies with many requests each do not delay a third's: it gets the next try but one.
func TestWaits_CompaniesTakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWaits()
		served := make(chan uuid.UUID, 100)
		ask := func(company uuid.UUID, n int) {
			for i := range n {
				row := HeldRow{company, fmt.Sprint(i)}
				go func() {
					if ok, err := w.try(t.Context(), row); ok && err == nil {
						served <- company
					}
				}()
				synctest.Wait()
			}
		}
		many, more, quiet := uuid.New(), uuid.New(), uuid.New()
		ask(many, 20)
		ask(more, 20)
		ask(quiet, 1)
		for range lockTries {
			<-served
		}
		w.endTry(HeldRow{many, "0"})
		w.endTry(HeldRow{many, "1"})
		if first, second := <-served, <-served; first != quiet && second != quiet {
			t.Error("the third company waits behind all requests of the others")
		}
		if len(w.turns.order) != 2 {
			t.Errorf("%d companies wait", len(w.turns.order))
		}
	})
}

// The error of a request that gets no try names the companies whose requests have the tries, and no other
// transactions: there may be none.
func TestWaits_NoTry(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		companies []uuid.UUID // whose requests have the tries, lockTriesOfEach each
		want      error
	}{
		{"of the company", []uuid.UUID{{1}}, ErrTriesOfCompany},
		{"of all", []uuid.UUID{{2}, {3}}, ErrTries},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWaits()
				for _, company := range c.companies {
					for n := range lockTriesOfEach {
						if ok, err := w.try(t.Context(), HeldRow{company, fmt.Sprint(n)}); !ok || err != nil {
							t.Fatal(ok, err)
						}
					}
				}
				start := time.Now()
				_, err := Bounded(t.Context(), &DB{waits: w}, HeldRow{uuid.UUID{1}, "free"}, func(time.Duration) ([]int, error) { return nil, nil })
				if !errors.Is(err, c.want) || errors.Is(err, ErrBusy) {
					t.Errorf("got %v", err)
				}
				if waited := time.Since(start); waited > 5*time.Second {
					t.Errorf("answered after %s", waited)
				}
			})
		})
	}
}

// A request that gets no try because its company's requests wait for locks gets the same error as those that are rejected beside
// the waiting ones, whichever are waiting at that moment.
func TestWaits_NoTryBesideLocks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWaits()
		company := uuid.New()
		held := func(wait time.Duration) ([]int, error) {
			<-time.After(wait)
			return nil, &pq.Error{Code: pqerror.LockNotAvailable}
		}
		const requests = 200 // in turnWait there are tries for 60
		errs := make(chan error, requests)
		for n := range requests {
			go func() {
				_, err := Bounded(t.Context(), &DB{waits: w}, HeldRow{company, fmt.Sprint(n)}, held)
				errs <- err
			}()
		}
		for range requests {
			if err := <-errs; !IsLockTimeout(err) && !errors.Is(err, ErrBusy) {
				t.Errorf("got %v", err)
			}
		}
		synctest.Wait()
		if len(w.met) > 0 {
			t.Error("the company's entry was not removed")
		}
	})
}
