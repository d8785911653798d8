package pendingresults

import "time"

// SilentFor makes Redis silent for d longer.
func (r *Results) SilentFor(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.silent = r.silent.Add(-d)
}
