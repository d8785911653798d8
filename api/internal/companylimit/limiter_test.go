package companylimit_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"

	"email-gateway/api/internal/companylimit"
)

func TestLimiter(t *testing.T) {
	t.Parallel()
	g := companylimit.New(3, 2)
	a, b := uuid.New(), uuid.New()
	enter := func(company uuid.UUID) func() {
		t.Helper()
		release, err := g.Enter(t.Context(), company)
		if err != nil {
			t.Fatal(err)
		}
		return release
	}
	rejected := func(company uuid.UUID, ownLimit bool) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		release, err := g.Enter(ctx, company)
		if err == nil {
			release()
		}
		if !errors.Is(err, context.Canceled) || errors.Is(err, companylimit.ErrCompanyLimit) != ownLimit {
			t.Errorf("company limit %v: error %v", ownLimit, err)
		}
	}
	first, second := enter(a), enter(a)
	rejected(a, true) // it uses all its slots
	if _, err := g.EnterOrRefuse(t.Context(), a); !errors.Is(err, companylimit.ErrCompanyLimit) {
		t.Errorf("without a wait for the company's own: %v", err)
	}
	third := enter(b)
	rejected(b, false) // all slots are used
	first()
	fourth := enter(b)
	second()
	third()
	fourth()
	for range 2 { // all slots were released
		enter(a)()
		enter(b)()
	}
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
