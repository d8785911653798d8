package pg

import "time"

const (
	// GroupWait is how long a group waits for a lock of another transaction. This system's own transactions hold such
	// locks for one commit.
	GroupWait = 200 * time.Millisecond
	// PartWait is the lock wait of a group that is written again after GroupWait, of its parts, and of an email that is
	// written alone because it waited. In a group of 256, one email that stays locked causes nine of these waits.
	PartWait = 20 * time.Millisecond
)
