package attachment

import (
	"context"
	"sync"
	"testing"

	"github.com/google/uuid"
)

// attached is what an email with attachments of this size needs.
func attached(size int64) need { return need{weight(size, 0), 1} }

func TestBudget(t *testing.T) {
	t.Parallel()
	b := newBudget(func() int { return 8 })
	b.wait = 1 // no email waits
	large, other := uuid.New(), uuid.New()
	const size = 5 << 20
	var releases []func()
	for {
		release, err := b.acquire(t.Context(), large, uuid.New(), attached(size))
		if err != nil {
			break
		}
		releases = append(releases, release)
	}
	if n := int64(len(releases)); n == 0 || n*weight(size, 0) > budgetBytes/4*ownPart {
		t.Fatalf("one company has %d emails of 5 MiB", n)
	}
	release, err := b.acquire(t.Context(), other, uuid.New(), attached(size))
	if err != nil {
		t.Fatal("one company's emails leave no room for another's")
	}
	release()
	release() // twice does no harm
	for _, release := range releases {
		release()
	}
	if b.used != 0 || b.count != 0 || len(b.own) != 0 {
		t.Errorf("%d bytes and %d emails are in use, of %d companies", b.used, b.count, len(b.own))
	}
	if release, err := b.acquire(t.Context(), large, uuid.New(), attached(40<<20)); err != nil {
		t.Error("the largest email never goes")
	} else {
		release()
	}
}

// However many emails with small files there are, half of the worker's places are left to others.
func TestBudget_Places(t *testing.T) {
	t.Parallel()
	b := newBudget(func() int { return 8 })
	b.wait = 1
	for company := range 3 {
		id := uuid.UUID{byte(company)}
		for range 100 {
			_, _ = b.acquire(t.Context(), id, uuid.New(), attached(10))
		}
		if own := b.own[id]; company == 0 && own.count > 6 {
			t.Errorf("one company has %d of 8 places", own.count)
		}
	}
	if b.count != 8 {
		t.Errorf("%d emails, want 8", b.count)
	}
}

// An email waits for room, but not many at a time: they occupy places of the worker.
func TestBudget_Waits(t *testing.T) {
	t.Parallel()
	b := newBudget(func() int { return 100 })
	b.wait = 1 << 62
	one, two := uuid.New(), uuid.New()
	first, err := b.acquire(t.Context(), one, uuid.New(), attached(budgetBytes))
	if err != nil {
		t.Fatal("no room")
	}
	var waiting sync.WaitGroup
	for _, company := range []uuid.UUID{one, two} {
		waiting.Go(func() {
			if release, err := b.acquire(context.WithoutCancel(t.Context()), company, uuid.New(), attached(budgetBytes)); err == nil {
				release()
			} else {
				t.Error("an email that waited got no turn")
			}
		})
	}
	for done := false; !done; {
		b.mu.Lock()
		done = b.waiting == 2
		b.mu.Unlock()
	}
	if _, err := b.acquire(t.Context(), one, uuid.New(), attached(budgetBytes)); err == nil {
		t.Error("a third email waits")
	}
	first()
	waiting.Wait()
}
