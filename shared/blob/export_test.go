package blob

// SetPage sets the number of objects per list request to an S3 server.
func (b *Bucket) SetPage(n int) {
	if s, ok := b.storage.(*server); ok {
		s.page = n
	}
}

// SyncFolder is syncFolder.
func SyncFolder(path string) error { return syncFolder(path) }
