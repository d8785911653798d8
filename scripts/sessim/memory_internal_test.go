package sessim

import (
	"testing"
)

func TestTally_ForgetsTheOldest(t *testing.T) {
	t.Parallel()
	var counts tally
	counts.next("first")
	name := func(i int) string { return string([]byte{byte(i), byte(i >> 8), byte(i >> 16)}) }
	for i := range tallyHalf - 1 {
		counts.next(name(i))
	}
	if n := counts.next("first"); n != 2 {
		t.Errorf("with one half full: %d, want 2", n)
	}
	counts.next("overflow")
	if n := counts.next("first"); n != 3 {
		t.Errorf("out of the older half: %d, want 3", n)
	}
	for i := range 3 * tallyHalf {
		counts.next(name(i))
	}
	if len(counts.recent)+len(counts.older) > 2*tallyHalf {
		t.Errorf("%d addresses are remembered", len(counts.recent)+len(counts.older))
	}
}

func TestQueue_ReturnsMemory(t *testing.T) {
	t.Parallel()
	var q queue[int]
	for i := range 1000 {
		q.push(i)
		if i >= 10 {
			if got := q.pop(); got != i-10 {
				t.Fatalf("pop = %d, want %d", got, i-10)
			}
		}
	}
	if q.len() != 10 || q.all()[0] != 990 || cap(q.items) > 100 {
		t.Errorf("len %d, cap %d, all %v", q.len(), cap(q.items), q.all())
	}
}
