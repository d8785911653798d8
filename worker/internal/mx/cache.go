package mx

import (
	"sync"
	"time"
)

// How long a verdict is believed. A mailbox provider's MX changes hardly ever; a domain
// that was mistyped by its owner's registrar may be mended within minutes.
const (
	validFor   = time.Hour
	invalidFor = 15 * time.Minute
	unknownFor = time.Minute
	// cacheSize bounds the memory: some 10 MB.
	cacheSize = 50_000
)

// cache keeps verdicts until their time has passed.
type cache struct {
	mu       sync.Mutex
	verdicts map[string]remembered
}

type remembered struct {
	verdict Verdict
	until   time.Time
}

func (c *cache) get(domain string, now time.Time) (Verdict, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r, ok := c.verdicts[domain]
	if !ok || !now.Before(r.until) {
		delete(c.verdicts, domain)
		return Verdict{}, false
	}
	return r.verdict, true
}

// put makes room, when there is none, by forgetting everything: asking again is cheap,
// and a file with so many domains is rare.
func (c *cache) put(domain string, v Verdict, until time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.verdicts == nil || len(c.verdicts) >= cacheSize {
		c.verdicts = make(map[string]remembered)
	}
	c.verdicts[domain] = remembered{v, until}
}
