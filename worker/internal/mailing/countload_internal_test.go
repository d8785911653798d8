package mailing

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	mailingstore "email-gateway/shared/store/mailing"
)

// countedMailings are mailings whose counts take a time in proportion to their lines and never find a change.
type countedMailings struct {
	mu     sync.Mutex
	lines  map[uuid.UUID]int
	owners map[uuid.UUID]uuid.UUID // by mailing; all others are of one company
	marked map[uuid.UUID]bool
	counts map[uuid.UUID][]time.Time
}

func newCountedMailings() *countedMailings {
	return &countedMailings{lines: map[uuid.UUID]int{}, owners: map[uuid.UUID]uuid.UUID{}, marked: map[uuid.UUID]bool{}, counts: map[uuid.UUID][]time.Time{}}
}

func (s *countedMailings) add(lines int) uuid.UUID {
	id := uuid.New()
	s.lines[id] = lines
	return id
}

func (s *countedMailings) OpenMailings(context.Context) ([]mailingstore.OpenMailing, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var open []mailingstore.OpenMailing
	for id, lines := range s.lines {
		at := time.Time{}
		if n := len(s.counts[id]); n > 0 {
			at = s.counts[id][n-1]
		}
		open = append(open, mailingstore.OpenMailing{ID: id, CompanyID: s.owners[id], Lines: lines, CountedAt: &at, AgeMS: time.Since(at).Milliseconds(), Changed: s.marked[id]})
	}
	slices.SortFunc(open, func(a, b mailingstore.OpenMailing) int { return a.Lines - b.Lines })
	return open, nil
}

func (s *countedMailings) CountMailing(_ context.Context, id uuid.UUID) (mailingstore.Tally, error) {
	s.mu.Lock()
	lines := s.lines[id]
	s.mu.Unlock()
	<-time.After(time.Duration(lines) * time.Microsecond)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[id] = append(s.counts[id], time.Now())
	return mailingstore.Tally{Applied: true, Queued: lines}, nil
}

func (s *countedMailings) FoldMailingFeedback(context.Context) (int, error) { return 0, nil }

// countsOf returns when a mailing was counted.
func (s *countedMailings) countsOf(id uuid.UUID) []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.counts[id])
}

// run runs two counters, as two dispatchers do.
func (s *countedMailings) run(t *testing.T, during func()) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var counters []*Counter
		for range 2 {
			c := NewCounter(CounterParams{Log: slog.New(slog.DiscardHandler), Store: s, Registry: prometheus.NewRegistry()})
			if err := c.Start(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			counters = append(counters, c)
			<-time.After(300 * time.Millisecond)
		}
		during()
		for _, c := range counters {
			if err := c.Stop(context.WithoutCancel(t.Context())); err != nil {
				t.Error(err)
			}
		}
	})
}

// A small mailing that changes is counted every second or two, however many large ones there are.
func TestCounter_SmallBesideLarge(t *testing.T) {
	t.Parallel()
	s := newCountedMailings()
	small := s.add(1000)
	s.marked[small] = true
	for range 20 {
		s.marked[s.add(1_000_000)] = true
	}
	s.run(t, func() { <-time.After(time.Minute) })
	counts := s.countsOf(small)
	last := counts[0]
	for _, at := range counts[1:] {
		if pause := at.Sub(last); pause > 2*time.Second {
			t.Errorf("it is counted %s after the count before", pause)
		}
		last = at
	}
	if n := len(counts); n < 30 {
		t.Errorf("it is counted %d times in a minute", n)
	}
}

// Mailings that do not change are counted more and more seldom, by all dispatchers together, and soon after a change.
func TestCounter_Unchanged(t *testing.T) {
	t.Parallel()
	s := newCountedMailings()
	var ids []uuid.UUID
	for range 20 {
		ids = append(ids, s.add(1_000_000))
	}
	small := s.add(10)
	s.run(t, func() {
		<-time.After(time.Hour)
		for _, id := range append(ids, small) {
			if n := len(s.countsOf(id)); n < 25 || n > 80 {
				t.Errorf("a mailing of %d lines is counted %d times in an hour", s.lines[id], n)
			}
		}
		changed := time.Now()
		s.mu.Lock()
		s.marked[small] = true
		s.mu.Unlock()
		<-time.After(2 * time.Second)
		if counts := s.countsOf(small); counts[len(counts)-1].Before(changed) {
			t.Error("a change was not counted")
		}
	})
}

// However many small mailings one company has, a larger one of another company is counted every few seconds.
func TestCounter_OneBesideManyOfAnotherCompany(t *testing.T) {
	t.Parallel()
	s := newCountedMailings()
	one := s.add(50_000)
	s.owners[one], s.marked[one] = uuid.New(), true
	var many []uuid.UUID
	for range 3000 { // 15 s for one count of each
		many = append(many, s.add(5000))
	}
	for _, id := range many {
		s.marked[id] = true
	}
	s.run(t, func() { <-time.After(2 * time.Minute) })
	counts := s.countsOf(one)
	if n := len(counts); n < 40 {
		t.Errorf("it is counted %d times in two minutes", n)
	}
	for _, id := range many {
		if n := len(s.countsOf(id)); n < 4 {
			t.Fatalf("one of the many is counted %d times in two minutes", n)
		}
	}
}
