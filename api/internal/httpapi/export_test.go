package httpapi

// Waiting returns how many requests wait.
func (p *EventPolls) Waiting() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count
}
