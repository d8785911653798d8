package csvfile

// NextLine is the physical line on which the next row begins at the earliest.
func (r *Reader) NextLine() int { return r.line }

// Physical is the number of fields in the header's row.
func (r *Reader) Physical() int { return r.physical }
