package bloom

import (
	"hash/maphash"
	"maps"
)

const (
	// maxRepeatedIDs limits the memory of a Counter to a few MiB.
	maxRepeatedIDs = 100_000

	// sharedRows is how many rows after its first one an id must have to be counted. The filter may take an id's first row
	// for a repeated one, so an id that is counted has this many rows or one more. Many files have ids of two rows.
	sharedRows = 3
)

// Counter counts the rows of a file that have an identifier in common with several others. Its memory is limited:
// it may miss a few rows of an id, and ids if more than maxRepeatedIDs are shared.
type Counter struct {
	seen     *Filter        // nil = no row has an id
	repeated map[uint64]int // rows after the first one, by the id's hash
	full     bool           // of shared ids: no more are added
}

// Add counts a row. Rows without an id are not counted.
func (c *Counter) Add(id string) {
	if id == "" {
		return
	}
	if c.seen == nil {
		c.seen, c.repeated = NewFilter(), map[uint64]int{}
	}
	hash := maphash.String(c.seen.seed, id)
	if !c.seen.addHash(hash) {
		return
	}
	if _, known := c.repeated[hash]; !known && !c.hasRoom() {
		return
	}
	c.repeated[hash]++
}

// hasRoom reports whether another id may be added. Ids of few rows make room: they would keep out one of many rows that
// comes later, in a file that is sorted by id for example.
func (c *Counter) hasRoom() bool {
	switch {
	case c.full:
		return false
	case len(c.repeated) < maxRepeatedIDs:
		return true
	}
	maps.DeleteFunc(c.repeated, func(_ uint64, more int) bool { return more < sharedRows })
	c.full = len(c.repeated) > maxRepeatedIDs/2 // otherwise every id might delete others again
	return !c.full
}

// Rows returns about how many rows share their id with several others: the filter may take an id's first row for a
// repeated one.
func (c *Counter) Rows() (n int) {
	for _, more := range c.repeated {
		if more >= sharedRows {
			n += more + 1
		}
	}
	return n
}
