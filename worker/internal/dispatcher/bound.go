package dispatcher

import (
	"time"

	"email-gateway/shared/store"
)

// late is how much later than the rows behind it a row may be committed and still be found by the next look. The full
// listing finds rows that are committed later than that.
const late = 2 * time.Second

// bound is a lower bound of the positions of a lane's rows. Takes and looks begin there, so that they do not read the
// index entries of emails that were taken, which an old snapshot keeps. A bound of next_at alone would not help a
// scheduled mailing, whose emails share one next_at.
type bound struct {
	position store.Position // zero = none is known
	next     store.Position // the first row of a look; no later look has found one before it
	seen     time.Time      // when that look began
}

// saw records the first row that a look has found, which began at that time and read from the bound on. The bound moves
// to next when a look that began late after that of next has found no row before next.
func (b *bound) saw(first store.Position, begun time.Time) {
	switch {
	case b.seen.IsZero() || first.Before(b.next):
		b.next, b.seen = first, begun
	case begun.Sub(b.seen) >= late:
		b.position, b.next, b.seen = b.next, first, begun
	}
	b.lower(first)
}

// lower moves the bound back to a row before it, and reports whether it did.
func (b *bound) lower(first store.Position) (lowered bool) {
	if lowered = first.Before(b.position); lowered {
		b.position = first
	}
	return lowered
}
