package access

import (
	"sync"
	"time"
)

// cache holds a bounded number of values for a fixed time.
type cache[T any] struct {
	max  int
	keep time.Duration

	mu      sync.RWMutex
	entries map[string]cacheEntry[T]
}

type cacheEntry[T any] struct {
	value T
	until time.Time
}

func newCache[T any](limit int, keep time.Duration) *cache[T] {
	return &cache[T]{max: limit, keep: keep, entries: make(map[string]cacheEntry[T])}
}

func (c *cache[T]) get(key string) (T, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	entry, ok := c.entries[key]
	if !ok || time.Now().After(entry.until) {
		var none T
		return none, false
	}
	return entry.value, true
}

// put evicts an arbitrary entry if the cache is full: each one only costs one query.
func (c *cache[T]) put(key string, value T) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, there := c.entries[key]; !there && len(c.entries) >= c.max {
		for victim := range c.entries {
			delete(c.entries, victim)
			break
		}
	}
	c.entries[key] = cacheEntry[T]{value: value, until: time.Now().Add(c.keep)}
}
