package dispatcher

import (
	"time"

	"email-gateway/shared/store"
)

// late is the maximum delay between a row's position and its commit with which the next poll still
// finds it. The full listing finds rows that are committed later.
const late = 2 * time.Second

// bound is a lower bound of the positions of a lane's rows. Takes and polls start there, so that
// they do not read the index entries of taken emails, which an old snapshot keeps. A bound of
// next_at alone would not help a scheduled mailing: all of its emails have the same next_at.
type bound struct {
	position store.Position // zero = unknown
	next     store.Position // the first row of a poll; no later poll has found one before it
	seen     time.Time      // when that poll began
}

// saw records the first row found by a poll that began at that time and read from the bound on. The
// bound moves to next when a poll that began at least late after next's poll found no row before
// next.
func (b *bound) saw(first store.Position, begun time.Time) {
	switch {
	case b.seen.IsZero() || first.Before(b.next):
		b.next, b.seen = first, begun
	case begun.Sub(b.seen) >= late:
		b.position, b.next, b.seen = b.next, first, begun
	}
	b.lower(first)
}

// lower moves the bound back to an earlier row, and reports whether it did.
func (b *bound) lower(first store.Position) (lowered bool) {
	if lowered = first.Before(b.position); lowered {
		b.position = first
	}
	return lowered
}
