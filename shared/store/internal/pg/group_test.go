package pg_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"

	"email-gateway/shared/store/internal/pg"
)

// writer is a database that records its items and delays each response until proceed is signalled or closed.
type writer struct {
	mu      sync.Mutex
	groups  [][]string
	proceed chan struct{} // nil = no delay
	refuse  func([]string) error
}

func (w *writer) write(ctx context.Context, items []string) ([]string, error) {
	w.mu.Lock()
	w.groups = append(w.groups, slices.Clone(items))
	w.mu.Unlock()
	if w.proceed != nil {
		select {
		case <-w.proceed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if w.refuse != nil {
		if err := w.refuse(items); err != nil {
			return nil, err
		}
	}
	results := make([]string, len(items))
	for i, item := range items {
		results[i] = "wrote " + item
	}
	return results, nil
}

// sizes are the groups' sizes in the order they were written.
func (w *writer) sizes() []int {
	w.mu.Lock()
	defer w.mu.Unlock()
	sizes := make([]int, len(w.groups))
	for i, g := range w.groups {
		sizes[i] = len(g)
	}
	return sizes
}

// newGroup groups texts: the part before a slash is the key, the length is the size.
func newGroup(w *writer) *pg.Group[string, string] {
	return pg.NewGroup(
		func(s string) string { key, _, _ := strings.Cut(s, "/"); return key },
		func(s string) int { return len(s) },
		w.write,
	)
}

// all gives items to the group, each from a goroutine of its own and in this order,
// and returns a function that waits for their outcomes.
func all(ctx context.Context, g *pg.Group[string, string], items ...string) func() []outcome {
	outcomes := make([]outcome, len(items))
	var wg sync.WaitGroup
	for i, item := range items {
		wg.Go(func() {
			result, err := g.Do(ctx, item)
			outcomes[i] = outcome{result, err}
		})
		synctest.Wait()
	}
	return func() []outcome { wg.Wait(); return outcomes }
}

type outcome struct {
	result string
	err    error
}

func TestGroup_WritesALoneItemAtOnce(t *testing.T) {
	t.Parallel()
	w := &writer{}
	g := newGroup(w)
	for range 3 {
		if got, err := g.Do(t.Context(), "a"); got != "wrote a" || err != nil {
			t.Fatalf("got %q, %v", got, err)
		}
	}
	g.Wait()
	if diff := cmp.Diff([]int{1, 1, 1}, w.sizes()); diff != "" {
		t.Error(diff)
	}
}

// While a group is in flight, new items wait and are then written together, in the
// order of the keys; each caller gets the result of its own item.
func TestGroup_JoinsWhatWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &writer{proceed: make(chan struct{})}
		g := newGroup(w)
		wait := all(t.Context(), g, "x", "y", "c", "a", "b")
		close(w.proceed)
		got := wait()
		if diff := cmp.Diff([][]string{{"x"}, {"a", "b", "c", "y"}}, w.groups); diff != "" {
			t.Error(diff)
		}
		for i, item := range []string{"x", "y", "c", "a", "b"} {
			if got[i] != (outcome{"wrote " + item, nil}) {
				t.Errorf("item %s got %v", item, got[i])
			}
		}
	})
}

// After a flush the next one waits for the flush delay, unless enough items wait; an idle group flushes
// immediately.
func TestGroup_FlushDelay(t *testing.T) {
	t.Parallel()
	const workers, delay, enough = 20, 3 * time.Millisecond, 32
	many := make([]string, enough)
	for i := range many {
		many[i] = fmt.Sprintf("m%02d", i)
	}
	for name, tt := range map[string]struct {
		lasts time.Duration // the first group
		come  time.Duration // after it has begun
		items []string
		wait  time.Duration // from then on
		want  []int
	}{
		"within the delay":             {0, 0, many[:3], delay - 1, []int{1}},
		"after the delay":              {0, 0, many[:3], delay, []int{1, 3}},
		"a few more items":             {0, 0, many[:enough-1], delay - 1, []int{1}},
		"enough items":                 {0, 0, many, 0, []int{1, enough}},
		"idle":                         {0, delay, many[:1], 0, []int{1, 1}},
		"within the delay, slow flush": {5 * time.Millisecond, 0, many[:3], 5*time.Millisecond + delay - 1, []int{1}},
		"after the delay, slow flush":  {5 * time.Millisecond, 0, many[:3], 5*time.Millisecond + delay, []int{1, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := &writer{proceed: make(chan struct{})}
				g := newGroup(w).SetWorkers(workers)
				time.AfterFunc(tt.lasts, func() { close(w.proceed) })
				wait := all(t.Context(), g, "x")
				synctest.Wait()
				<-time.After(tt.come) // of the bubble's own clock
				rest := all(t.Context(), g, tt.items...)
				<-time.After(tt.wait)
				synctest.Wait()
				if diff := cmp.Diff(tt.want, w.sizes()); diff != "" {
					t.Error(diff)
				}
				wait()
				rest()
			})
		})
	}
}

// The flush delay of many goroutines is not longer than 8 ms.
func TestGroup_LongestFlushDelay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const longest = 8 * time.Millisecond
		w := &writer{proceed: make(chan struct{})}
		close(w.proceed)
		g := newGroup(w).SetWorkers(1000)
		first := all(t.Context(), g, "x")
		synctest.Wait()
		rest := all(t.Context(), g, "a", "b")
		for _, step := range []struct {
			wait time.Duration
			want []int
		}{{longest - 1, []int{1}}, {1, []int{1, 2}}} {
			<-time.After(step.wait) // of the bubble's own clock
			synctest.Wait()
			if diff := cmp.Diff(step.want, w.sizes()); diff != "" {
				t.Error(diff)
			}
		}
		first()
		rest()
	})
}

// The flush delay begins again after each flush: a later item does not get only the rest of an earlier delay.
func TestGroup_FlushDelayBeginsAnew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &writer{proceed: make(chan struct{})}
		g := newGroup(w)
		wait := all(t.Context(), g, "x", "a")
		<-time.After(9 * time.Millisecond) // of the bubble's own clock
		w.proceed <- struct{}{}            // x is written, a is in flight
		synctest.Wait()
		rest := all(t.Context(), g, "b")
		for _, tt := range []struct {
			wait time.Duration
			want []int
		}{{2 * time.Millisecond, []int{1, 1}}, {8 * time.Millisecond, []int{1, 1, 1}}} {
			<-time.After(tt.wait)
			synctest.Wait()
			if diff := cmp.Diff(tt.want, w.sizes()); diff != "" {
				t.Error(diff)
			}
		}
		close(w.proceed)
		wait()
		rest()
	})
}

// A second flush begins beside the first when enough items wait, or when the first takes
// long: it may wait for a lock that the other items do not need.
func TestGroup_SecondFlush(t *testing.T) {
	t.Parallel()
	many := make([]string, 32)
	for i := range many {
		many[i] = fmt.Sprintf("m%02d", i)
	}
	for name, tt := range map[string]struct {
		items []string
		wait  time.Duration
		want  []int
	}{
		"not for a few":                 {many[:31], 0, []int{1}},
		"for many":                      {many, 0, []int{1, 32}},
		"for one that has waited":       {many[:1], 10 * time.Millisecond, []int{1, 1}},
		"for several that have":         {many[:3], 10 * time.Millisecond, []int{1, 3}},
		"not before it has waited":      {many[:1], 9 * time.Millisecond, []int{1}},
		"and no third one whatever":     {append(slices.Clone(many), "a", "b"), time.Second, []int{1, 32}},
		"no item waits or is in flight": {nil, time.Second, []int{1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := &writer{proceed: make(chan struct{})}
				g := newGroup(w)
				wait := all(t.Context(), g, append([]string{"x"}, tt.items...)...)
				<-time.After(tt.wait) // of the bubble's own clock
				synctest.Wait()
				if diff := cmp.Diff(tt.want, w.sizes()); diff != "" {
					t.Error(diff)
				}
				close(w.proceed)
				wait()
			})
		})
	}
}

func TestGroup_NeverHoldsAKeyTwice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &writer{proceed: make(chan struct{})}
		g := newGroup(w)
		wait := all(t.Context(), g, "x", "y", "a/1", "b/1", "a/2", "c/1", "a/3")
		close(w.proceed)
		wait()
		for _, group := range w.groups {
			keys := map[string]bool{}
			for _, item := range group {
				key, _, _ := strings.Cut(item, "/")
				if keys[key] {
					t.Errorf("%s twice in %v", key, group)
				}
				keys[key] = true
			}
		}
		if n := len(slices.Concat(w.groups...)); n != 7 {
			t.Errorf("%d items written, want 7", n)
		}
	})
}

func TestGroup_Bounds(t *testing.T) {
	t.Parallel()
	items := func(n, size int) []string {
		all := make([]string, n)
		for i := range all {
			all[i] = fmt.Sprintf("%04d/%s", i, strings.Repeat("x", max(0, size-5)))
		}
		return all
	}
	for name, tt := range map[string]struct {
		items []string
		want  []int
	}{
		"256 rows":                   {items(600, 10), []int{57, 256, 256}},
		"1 MiB":                      {items(10, 400<<10), []int{2, 2, 2, 2}},
		"an item of more than 1 MiB": {[]string{"a/" + strings.Repeat("x", 2<<20), "b", "c"}, []int{1, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := &writer{proceed: make(chan struct{})}
				g := newGroup(w)
				wait := all(t.Context(), g, append([]string{"x", "y"}, tt.items...)...)
				close(w.proceed)
				wait()
				got := w.sizes()[2:]
				// Two flushes take turns: the order in which they report is not given.
				slices.Sort(got)
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

// Postgres rejects a statement as a whole. Only the invalid item may get its error.
func TestGroup_ABadItemFailsAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		refused := &pq.Error{Code: pqerror.CheckViolation}
		w := &writer{proceed: make(chan struct{}), refuse: func(items []string) error {
			if slices.Contains(items, "050") || slices.Contains(items, "051") {
				return refused
			}
			return nil
		}}
		g := newGroup(w)
		items := []string{"x", "y"}
		for i := range 100 {
			items = append(items, fmt.Sprintf("%03d", i))
		}
		wait := all(t.Context(), g, items...)
		close(w.proceed)
		for i, got := range wait() {
			bad := items[i] == "050" || items[i] == "051"
			if bad != errors.Is(got.err, refused) || !bad && got.result != "wrote "+items[i] {
				t.Errorf("item %s got %v", items[i], got)
			}
		}
		if n := len(w.groups); n > 30 {
			t.Errorf("%d statements to find two items among a hundred", n)
		}
	})
}

// If the database is unavailable, no item is at fault: the group is not split.
func TestGroup_FailsAsAWholeWhenNoItemIsAtFault(t *testing.T) {
	t.Parallel()
	for _, cause := range []error{
		pg.ErrUnavailable, pg.ErrUnknownOutcome, &pq.Error{Code: pqerror.QueryCanceled}, &pq.Error{Code: pqerror.DiskFull},
		&pq.Error{Code: pqerror.InternalError}, &pq.Error{Code: pqerror.ReadOnlySQLTransaction},
		&pq.Error{Code: pqerror.ProgramLimitExceeded},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := &writer{proceed: make(chan struct{}), refuse: func([]string) error { return cause }}
			g := newGroup(w)
			wait := all(t.Context(), g, "x", "y", "a", "b", "c")
			close(w.proceed)
			for _, got := range wait() {
				if !errors.Is(got.err, cause) {
					t.Errorf("error %v, want %v", got.err, cause)
				}
			}
			if diff := cmp.Diff([]int{1, 4}, w.sizes()); diff != "" {
				t.Errorf("%v: %s", cause, diff)
			}
		})
	}
}

func TestGroup_RepeatsAfterAConflict(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		cause  *pq.Error
		losses int
		want   bool
	}{
		"deadlock":                  {&pq.Error{Code: pqerror.TRDeadlockDetected}, 4, true},
		"serialization":             {&pq.Error{Code: pqerror.TRSerializationFailure}, 1, true},
		"an event's place is taken": {&pq.Error{Code: pqerror.UniqueViolation, Constraint: "email_events_pkey"}, 1, true},
		"an event does not fit":     {&pq.Error{Code: pqerror.CheckViolation, Constraint: "email_events_path"}, 1, true},
		"another place is taken":    {&pq.Error{Code: pqerror.UniqueViolation, Constraint: "email_outbox_pkey"}, 1, false},
		"for ever":                  {&pq.Error{Code: pqerror.TRDeadlockDetected}, 1000, false},
	} {
		w := &writer{}
		losses := tt.losses
		w.refuse = func([]string) error {
			if losses--; losses >= 0 {
				return tt.cause
			}
			return nil
		}
		if _, err := newGroup(w).Do(t.Context(), "a"); (err == nil) != tt.want {
			t.Errorf("%s: %v after %d tries", name, err, len(w.groups))
		}
	}
}

// If a caller's context ends before its item is written, the item is not written, and the caller gets an error that says so.
func TestGroup_ContextEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &writer{proceed: make(chan struct{})}
		g := newGroup(w)
		ctx, cancel := context.WithCancelCause(t.Context())
		gone := errors.New("gone")
		waitWritten := all(ctx, g, "x")
		waitQueued := all(ctx, g, "a", "b")
		waitOther := all(t.Context(), g, "c")
		cancel(gone)
		for _, got := range waitWritten() {
			if !errors.Is(got.err, gone) || !errors.Is(got.err, pg.ErrUnknownOutcome) {
				t.Errorf("in flight: %v", got.err)
			}
		}
		for _, got := range waitQueued() {
			if !errors.Is(got.err, gone) || errors.Is(got.err, pg.ErrUnknownOutcome) {
				t.Errorf("in the queue: %v", got.err)
			}
		}
		close(w.proceed)
		if got := waitOther()[0]; got.err != nil {
			t.Errorf("caller whose context has not ended: %v", got.err)
		}
		g.Wait()
		if diff := cmp.Diff([][]string{{"x"}, {"c"}}, w.groups); diff != "" {
			t.Error(diff)
		}
	})
}

// A write that Postgres never answers ends after the group's own timeout, independent of its
// callers' contexts.
func TestGroup_GivesUpOnAStatement(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &writer{proceed: make(chan struct{})}
		if _, err := newGroup(w).Do(context.WithoutCancel(t.Context()), "a"); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}
