package dispatcher

import (
	"time"

	"email-gateway/shared/store"
)

// late is how much later than rows behind it a row may be committed and still be found by the next look. The full
// listing finds those that are committed later still.
const late = 2 * time.Second

// bound is a lower bound of the rows of a lane, so that index entries of rows that were taken are not read again while
// an old snapshot keeps them. It is a position and no time alone: the emails of a mailing may share one next_at. It is
// where the lane began in a look that is late old, and in each look since.
type bound struct {
	position store.Position // zero = none is known
	next     store.Position // that of a look which no look has contradicted since
	seen     time.Time      // when that look began
}

// saw takes the first row that a look begun then has found, reading from the bound on.
func (b *bound) saw(first store.Position, begun time.Time) {
	switch {
	case b.seen.IsZero() || first.Before(b.next):
		b.next, b.seen = first, begun
	case begun.Sub(b.seen) >= late:
		b.position, b.next, b.seen = b.next, first, begun
	}
	b.lower(first)
}

// lower takes a row that was found by reading from the lane's start on.
func (b *bound) lower(first store.Position) (lowered bool) {
	if lowered = first.Before(b.position); lowered {
		b.position = first
	}
	return lowered
}
