package clientip

// Watched is the number of stored networks.
func (g *Guard) Watched() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.buckets)
}
