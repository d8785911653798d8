package clientip

// Watched is how many networks are remembered.
func (g *Guard) Watched() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.buckets)
}
