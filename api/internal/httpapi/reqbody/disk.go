package reqbody

// bodyDisk is where a body's attachments are stored while the request is processed.
type bodyDisk struct{ *inbound }

// Reserve accounts for n bytes of the body's disk space.
func (d bodyDisk) Reserve(n int64) error { return d.receiver.Memory.spill(d.inbound, n) }
