package dispatcher

import "slices"

// turns shares the room on a queue among lanes, and remembers whose turn is next
// when there are more lanes than room.
type turns struct {
	last int64 // the lane that had the last turn
}

// share says which of the lanes (sorted, at least one) take part in a round with
// room for that many emails (at least one), and how many each may bring. The room
// that lanes with fewer emails leave is shared in the next round.
func (t *turns) share(lanes []int64, room int) (chosen []int64, perLane int) {
	first, _ := slices.BinarySearch(lanes, t.last+1)
	chosen = slices.Concat(lanes[first:], lanes[:first])
	chosen = chosen[:min(len(chosen), room)]
	t.last = chosen[len(chosen)-1]
	return chosen, room / len(chosen)
}
