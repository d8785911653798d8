package pg

import "time"

const (
	// GroupWait is how long a group waits for a lock of another transaction. Our own hold
	// theirs for one commit.
	GroupWait = 200 * time.Millisecond
	// PartWait is the wait of a group that waited GroupWait and is written again, of its parts,
	// and of an email that is written alone because it waited. A group of 256 with one email
	// that still waits makes nine of these waits.
	PartWait = 20 * time.Millisecond
)
