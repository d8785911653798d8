package companylimit_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"email-gateway/api/internal/companylimit"
)

// limiter is a Limiter of a test.
type limiter struct {
	*companylimit.Limiter
}

func (l limiter) enter(t *testing.T, company uuid.UUID) (release func()) {
	t.Helper()
	release, err := l.Enter(t.Context(), company)
	if err != nil {
		t.Fatal(err)
	}
	return release
}

// rejected checks that the company gets no slot, because of its own limit or not.
func (l limiter) rejected(t *testing.T, company uuid.UUID, ownLimit bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	release, err := l.Enter(ctx, company)
	if err == nil {
		release()
	}
	if !errors.Is(err, context.Canceled) || errors.Is(err, companylimit.ErrCompanyLimit) != ownLimit {
		t.Errorf("company limit %v: error %v", ownLimit, err)
	}
}

func TestLimiter(t *testing.T) {
	t.Parallel()
	g := limiter{companylimit.New(3, 2)}
	a, b := uuid.New(), uuid.New()
	first, second := g.enter(t, a), g.enter(t, a)
	g.rejected(t, a, true) // it uses all its slots
	if _, err := g.EnterOrRefuse(t.Context(), a); !errors.Is(err, companylimit.ErrCompanyLimit) {
		t.Errorf("without a wait for the company's own: %v", err)
	}
	third := g.enter(t, b)
	g.rejected(t, b, false) // all slots are used
	first()
	second()
	fourth := g.enter(t, b)
	third()
	fourth()
	for range 2 { // all slots were released
		g.enter(t, a)()
		g.enter(t, b)()
	}
}

// wait starts a caller that waits for a slot. taken is closed when it has one.
func (l limiter) wait(t *testing.T, company uuid.UUID) (taken <-chan struct{}) {
	t.Helper()
	has := make(chan struct{})
	go func() {
		if _, err := l.Enter(t.Context(), company); err != nil {
			t.Error(err)
		}
		close(has)
	}()
	synctest.Wait()
	return has
}

func isClosed(c <-chan struct{}) bool {
	synctest.Wait()
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Two companies that do not release their slots leave the last one to a third company, also if one of them waits for it.
func TestLimiter_LastSlotIsForAnotherCompany(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := limiter{companylimit.NewKeepingLast(4, 2)}
		a, b, c := uuid.New(), uuid.New(), uuid.New()
		releaseA, _, _ := g.enter(t, a), g.enter(t, a), g.enter(t, b)
		g.rejected(t, b, false)
		second := g.wait(t, b)
		releaseC := g.enter(t, c)
		releaseC()
		releaseC = g.enter(t, c)
		releaseA()
		if isClosed(second) {
			t.Error("a company that holds a slot got the last one")
		}
		if releaseC(); !isClosed(second) {
			t.Error("a company waits for a slot though two are free")
		}
	})
}

// One release can serve two callers: with two free slots the first waiter is served, and then the company that
// released its only slot.
func TestLimiter_ReleaseServesTwo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := limiter{companylimit.NewKeepingLast(3, 2)}
		a, b := uuid.New(), uuid.New()
		release, _ := g.enter(t, a), g.enter(t, b)
		ofB, ofA := g.wait(t, b), g.wait(t, a)
		if isClosed(ofB) || isClosed(ofA) {
			t.Error("a company that holds a slot got the last one")
		}
		if release(); !isClosed(ofB) || !isClosed(ofA) {
			t.Error("a company waits for a slot though it may have one")
		}
	})
}

// Room is made after each second for which a caller waits, and no more once it has a slot.
func TestLimiter_OnFull(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := limiter{companylimit.New(3, 2)}
		calls := 0
		g.OnFull(time.Second, func() { calls++ })
		a, b := uuid.New(), uuid.New()
		release, _, _ := g.enter(t, a), g.enter(t, a), g.enter(t, b)
		second := g.wait(t, b)
		time.Sleep(2*time.Second + time.Second/2) //nolint:forbidigo // the clock of synctest
		if synctest.Wait(); calls != 2 {
			t.Errorf("room was made %d times, want 2", calls)
		}
		if release(); !isClosed(second) {
			t.Error("the caller has no slot though one was released")
		}
		time.Sleep(time.Minute) //nolint:forbidigo // the clock of synctest
		if synctest.Wait(); calls != 2 {
			t.Error("room was made though no caller waits")
		}
	})
}

func TestLimiter_NeverExceedsItsSlots(t *testing.T) {
	t.Parallel()
	g := companylimit.New(4, 2)
	companies := []uuid.UUID{uuid.New(), uuid.New(), uuid.New()}
	var inside atomic.Int64
	var all sync.WaitGroup
	for n := range 60 {
		all.Go(func() {
			release, err := g.Enter(t.Context(), companies[n%3])
			if err != nil {
				t.Error(err)
				return
			}
			if inside.Add(1) > 4 {
				t.Error("more than 4 uploads hold a slot")
			}
			inside.Add(-1)
			release()
		})
	}
	all.Wait()
}
