package dispatcher

import (
	"cmp"
	"maps"
	"slices"
)

// turns shares the room on a queue among lanes, and remembers whose turn is next
// when there are more lanes than room.
type turns struct {
	last int64 // the lane that had the last turn
	// used is how many recipients each lane has put on the queue, while emails have several:
	// lanes then take turns by recipients, which are what the provider counts.
	used map[int64]int
}

// share says which of the lanes (sorted, at least one) take part in a round with
// room for that many emails (at least one), and how many each may bring. The room
// that lanes with fewer emails leave is shared in the next round.
func (t *turns) share(lanes []int64, room int) (chosen []int64, perLane int) {
	first, _ := slices.BinarySearch(lanes, t.last+1)
	chosen = slices.Concat(lanes[first:], lanes[:first])
	if len(t.used) > 0 && room < len(chosen) {
		t.admit(lanes)
		slices.SortStableFunc(chosen, func(a, b int64) int { return cmp.Compare(t.used[a], t.used[b]) })
	}
	chosen = chosen[:min(len(chosen), room)]
	t.last = chosen[len(chosen)-1]
	return chosen, room / len(chosen)
}

// admit gives a lane that was away the place of the one that has used least. lanes are sorted.
func (t *turns) admit(lanes []int64) {
	least, known := 0, false
	for _, lane := range lanes {
		if used, is := t.used[lane]; is && (!known || used < least) {
			least, known = used, true
		}
	}
	for _, lane := range lanes {
		if _, is := t.used[lane]; !is {
			t.used[lane] = least
		}
	}
	maps.DeleteFunc(t.used, func(lane int64, _ int) bool {
		_, waits := slices.BinarySearch(lanes, lane)
		return !waits
	})
}

// charge notes the recipients that lanes have put on the queue. While emails have one recipient
// each, turns are enough.
func (t *turns) charge(several bool, recipients map[int64]int) {
	if !several {
		t.used = nil
		return
	}
	if t.used == nil {
		t.used = make(map[int64]int)
	}
	for lane, n := range recipients {
		t.used[lane] += n
	}
}
