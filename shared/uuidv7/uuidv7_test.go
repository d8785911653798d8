package uuidv7_test

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/uuidv7"
)

// host is a machine with a clock, and a server whose clock is ahead of it by offset. A question takes rtt.
type host struct {
	now    time.Time
	offset time.Duration
	rtt    time.Duration
	ids    *uuidv7.Source
}

func newHost() *host {
	h := &host{now: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)}
	h.ids = uuidv7.NewSource(func() time.Time { return h.now })
	return h
}

// follow reads the server's clock at the beginning of the question.
func (h *host) follow(t *testing.T) {
	t.Helper()
	if err := h.ids.Follow(func() (time.Time, error) {
		server := h.now.Add(h.offset)
		h.now = h.now.Add(h.rtt)
		return server, nil
	}); err != nil {
		t.Fatal(err)
	}
}

// mustBe fails unless the next id's time differs from the host's by offset, give or take tolerance.
func (h *host) mustBe(t *testing.T, offset, tolerance time.Duration) uuid.UUID {
	t.Helper()
	id := h.ids.New()
	if got := time.Unix(id.Time().UnixTime()).Sub(h.now); (got - offset).Abs() > tolerance+time.Millisecond {
		t.Errorf("the id differs by %s from the host's clock, want %s ± %s", got, offset, tolerance)
	}
	if id.Version() != 7 || id.Variant() != uuid.RFC4122 {
		t.Errorf("%s is no UUIDv7", id)
	}
	return id
}

func TestSource_HasTheTimeOfTheServer(t *testing.T) {
	t.Parallel()
	h := newHost()
	h.mustBe(t, 0, 0) // no server has answered
	h.rtt = 2 * time.Millisecond
	for _, offset := range []time.Duration{time.Minute, -10 * time.Minute, 24 * time.Hour, time.Millisecond * 1100, 0} {
		h.offset = offset
		h.follow(t)
		h.mustBe(t, offset, h.rtt/2)
		h.now = h.now.Add(time.Second)
		h.mustBe(t, offset, h.rtt/2)
	}
	if err := h.ids.Follow(func() (time.Time, error) { return time.Time{}, errors.New("no answer") }); err == nil {
		t.Error("no error")
	}
	h.mustBe(t, 0, h.rtt/2)
}

// A clock that may be right is kept, so that the duration of an answer does not change the order of ids.
func TestSource_SlowAnswer(t *testing.T) {
	t.Parallel()
	h := newHost()
	h.offset, h.rtt = time.Minute, time.Millisecond
	h.follow(t)
	h.rtt = 4 * time.Second
	h.follow(t)
	h.mustBe(t, time.Minute, time.Millisecond)
}

// Small corrections do not change the order; after a large one, the ids do not keep the wrong time.
func TestSource_ClockIsSetBack(t *testing.T) {
	t.Parallel()
	h := newHost()
	h.offset = 900 * time.Millisecond
	h.follow(t)
	last := h.ids.New()
	h.offset = 0
	h.follow(t)
	for range 10_000 {
		id := h.ids.New()
		if id.String() <= last.String() {
			t.Fatalf("%s after %s", id, last)
		}
		last = id
	}
	h.now = h.now.Add(time.Second)
	h.mustBe(t, 0, 0)

	h.offset = 24 * time.Hour
	h.follow(t)
	h.mustBe(t, h.offset, 0)
	h.offset = 0
	h.follow(t)
	h.mustBe(t, 0, 0)
}

// The rows of one request keep their order although the clock is set back between them. The test changes the clock of
// the process, so it does not run beside others.
func TestSeries(t *testing.T) { //nolint:paralleltest // see above
	follow := func(offset time.Duration) {
		if err := uuidv7.Process().Follow(func() (time.Time, error) { return time.Now().Add(offset), nil }); err != nil {
			t.Fatal(err)
		}
	}
	defer follow(0)
	var series uuidv7.Series
	follow(24 * time.Hour)
	first := series.New()
	follow(0)
	if second := series.New(); second.String() <= first.String() {
		t.Errorf("%s after %s", second, first)
	}
	if other := uuidv7.New(); time.Until(time.Unix(other.Time().UnixTime())) > time.Minute {
		t.Errorf("%s has the time of the series", other)
	}
}

func TestSource_ManyGoroutines(t *testing.T) {
	t.Parallel()
	const goroutines, each = 8, 5000
	made := make([][]uuid.UUID, goroutines)
	ids := uuidv7.NewSource(time.Now)
	var wg sync.WaitGroup
	for i := range made {
		wg.Go(func() {
			for range each {
				made[i] = append(made[i], ids.New())
			}
		})
	}
	wg.Wait()
	less := func(a, b uuid.UUID) int { return slices.Compare(a[:], b[:]) }
	for _, some := range made {
		if !slices.IsSortedFunc(some, less) {
			t.Error("the ids of a goroutine do not increase")
		}
	}
	all := slices.Concat(made...)
	slices.SortFunc(all, less)
	if n := len(slices.CompactFunc(all, func(a, b uuid.UUID) bool { return slices.Equal(a[:8], b[:8]) })); n != goroutines*each {
		t.Errorf("%d different times in %d ids", n, goroutines*each)
	}
}

func TestFirst_Time(t *testing.T) {
	t.Parallel()
	at := time.Date(2030, 1, 2, 3, 4, 5, 6_000_000, time.UTC)
	first, id := uuidv7.First(at), uuidv7.NewSource(func() time.Time { return at }).New()
	if next := uuidv7.First(at.Add(time.Millisecond)); first.String() >= id.String() || id.String() >= next.String() {
		t.Errorf("%s, %s, %s", first, id, next)
	}
	if made := uuidv7.Time(id); !made.Equal(at) {
		t.Errorf("made at %s, want %s", made, at)
	}
}

func BenchmarkNew(b *testing.B) {
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			_ = uuidv7.New()
		}
	})
}
