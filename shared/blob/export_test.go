package blob

// SetPage makes a listing ask for so many objects at a time.
func (b *Bucket) SetPage(n int) { b.page = n }
