package csvfile

// usualWidth is the number of fields that most rows of a file have (Boyer-Moore majority vote). Neither a single shorter
// row nor a single full one changes it.
type usualWidth struct {
	fields int // 0 = no row yet
	votes  int
}

func (u *usualWidth) add(fields int) {
	switch {
	case fields == u.fields:
		u.votes++
	case u.votes == 0:
		u.fields, u.votes = fields, 1
	default:
		u.votes--
	}
}

// least returns how many fields a row must have that may be a line of a broken cell. It is at least two, because a line
// that is only an address looks like a row. all is the number of columns: without rows, nothing else is known.
func (u *usualWidth) least(all int) int {
	if u.fields == 0 {
		return all
	}
	return max(u.fields, min(all, 2))
}
