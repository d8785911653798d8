package mailing

import "hash/maphash"

// maxRepeatedIDs limits the memory of an idCounter to a few MiB. Further ids are not counted.
const maxRepeatedIDs = 100_000

// idCounter counts the rows of a file that have their recipient's id in common with at least two other rows. It does not
// count an id of two rows, because its filter may take a new id for a known one.
type idCounter struct {
	seen     *addressFilter // nil = no row has an id
	repeated map[uint64]int // rows after the first one, by the id's hash
}

func (c *idCounter) add(id string) {
	if id == "" {
		return
	}
	if c.seen == nil {
		c.seen, c.repeated = newAddressFilter(), map[uint64]int{}
	}
	if !c.seen.add(id) {
		return
	}
	hash := maphash.String(c.seen.seed, id)
	if _, known := c.repeated[hash]; known || len(c.repeated) < maxRepeatedIDs {
		c.repeated[hash]++
	}
}

// rows returns how many rows share their id with at least two others.
func (c *idCounter) rows() (n int) {
	for _, more := range c.repeated {
		if more > 1 {
			n += more + 1
		}
	}
	return n
}
