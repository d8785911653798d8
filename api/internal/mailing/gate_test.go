package mailing_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"

	"email-gateway/api/internal/mailing"
)

func TestGate(t *testing.T) {
	t.Parallel()
	g := mailing.NewGate(3, 2)
	a, b := uuid.New(), uuid.New()
	enter := func(company uuid.UUID) func() {
		t.Helper()
		leave, err := g.Enter(t.Context(), company)
		if err != nil {
			t.Fatal(err)
		}
		return leave
	}
	shut := func(company uuid.UUID, ownLimit bool) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		leave, err := g.Enter(ctx, company)
		if err == nil {
			leave()
		}
		if !errors.Is(err, context.Canceled) || errors.Is(err, mailing.ErrOwnLimit) != ownLimit {
			t.Errorf("the company's own limit %v: %v", ownLimit, err)
		}
	}
	first, second := enter(a), enter(a)
	shut(a, true) // its share is taken
	third := enter(b)
	shut(b, false) // all places are
	first()
	fourth := enter(b)
	second()
	third()
	fourth()
	for range 2 { // nothing was lost on the way
		enter(a)()
		enter(b)()
	}
}

func TestGate_NeverMoreThanItsPlaces(t *testing.T) {
	t.Parallel()
	g := mailing.NewGate(4, 2)
	companies := []uuid.UUID{uuid.New(), uuid.New(), uuid.New()}
	var inside atomic.Int64
	var all sync.WaitGroup
	for n := range 60 {
		all.Go(func() {
			leave, err := g.Enter(t.Context(), companies[n%3])
			if err != nil {
				t.Error(err)
				return
			}
			if inside.Add(1) > 4 {
				t.Error("more than 4 inside")
			}
			inside.Add(-1)
			leave()
		})
	}
	all.Wait()
}
