package csvfile

// NextLine is the earliest physical line of the next row.
func (r *Reader) NextLine() int { return r.line }

// Physical is the number of fields of the header row.
func (r *Reader) Physical() int { return r.physical }

// Looked is the number of bytes that the search for quoted fields has read.
func (r *Reader) Looked() int { return r.t.looked }
