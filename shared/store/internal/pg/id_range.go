package pg

import (
	"bytes"

	"github.com/google/uuid"
)

// IDRange returns the smallest and the greatest id of the rows. A statement with both reads only the partitions between
// them: ids contain their time, and most emails that are processed together were accepted in the same month.
func IDRange[T any](rows []T, id func(*T) uuid.UUID) (first, last uuid.UUID) {
	for i := range rows {
		this := id(&rows[i])
		if i == 0 || bytes.Compare(this[:], first[:]) < 0 {
			first = this
		}
		if i == 0 || bytes.Compare(this[:], last[:]) > 0 {
			last = this
		}
	}
	return first, last
}

// IDBefore returns the greatest id that is less than id.
func IDBefore(id uuid.UUID) uuid.UUID {
	for i := len(id) - 1; i >= 0; i-- {
		id[i]--
		if id[i] != 0xff {
			break
		}
	}
	return id
}
