package mx

import (
	"sync"
	"time"
)

// How long a result is cached. A mailbox provider's MX rarely changes; a registrar's mistake in a
// domain may be fixed within minutes.
const (
	validFor   = time.Hour
	invalidFor = 15 * time.Minute
	unknownFor = time.Minute
	// cacheSize bounds the memory to some 10 MB.
	cacheSize = 50_000
)

// cache keeps results until they expire.
type cache struct {
	mu      sync.Mutex
	results map[string]cached
}

type cached struct {
	result Result
	until  time.Time
}

func (c *cache) get(domain string, now time.Time) (Result, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r, ok := c.results[domain]
	if !ok || !now.Before(r.until) {
		delete(c.results, domain)
		return Result{}, false
	}
	return r.result, true
}

// put clears a full cache: lookups are cheap, and a file with that many domains is rare.
func (c *cache) put(domain string, v Result, until time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.results == nil || len(c.results) >= cacheSize {
		c.results = make(map[string]cached)
	}
	c.results[domain] = cached{v, until}
}
