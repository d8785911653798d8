package blob

// SetPage sets the number of objects per list request.
func (b *Bucket) SetPage(n int) { b.page = n }
