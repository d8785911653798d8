package template

import (
	"container/list"
	"sync"

	"github.com/google/uuid"
)

// Cache keeps parsed templates under keys, with limits for the memory of all and of one company's: a company that uses many
// templates evicts its own. It is safe for concurrent use.
type Cache[K comparable, V any] struct {
	limits CacheLimits

	mu        sync.Mutex
	entries   map[K]*list.Element
	companies map[uuid.UUID]*companyCache
	size      int
}

// CacheLimits are in bytes.
type CacheLimits struct{ All, PerCompany int }

// companyCache has the entries of one company, most recently used first.
type companyCache struct {
	entries *list.List
	size    int
}

type cacheEntry[K comparable, V any] struct {
	key     K
	company *companyCache
	id      uuid.UUID
	size    int
	parsed  V
}

// NewCache returns an empty Cache.
func NewCache[K comparable, V any](limits CacheLimits) *Cache[K, V] {
	return &Cache[K, V]{limits: limits, entries: map[K]*list.Element{}, companies: map[uuid.UUID]*companyCache{}}
}

// Get returns what is kept under the key.
func (c *Cache[K, V]) Get(key K) (parsed V, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, ok := c.entries[key]
	if !ok {
		return parsed, false
	}
	found, _ := at.Value.(*cacheEntry[K, V])
	found.company.entries.MoveToFront(at)
	return found.parsed, true
}

// Put keeps a template of this size and evicts others: of its company beyond the company's limit, and beyond the common limit
// of the company with the most. A template that is larger than the company's limit is not kept.
func (c *Cache[K, V]) Put(company uuid.UUID, key K, parsed V, size int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.entries[key]; ok || size > c.limits.PerCompany {
		return
	}
	own := c.companies[company]
	if own == nil {
		own = &companyCache{entries: list.New()}
		c.companies[company] = own
	}
	c.entries[key] = own.entries.PushFront(&cacheEntry[K, V]{key, own, company, size, parsed})
	own.size += size
	c.size += size
	for own.size > c.limits.PerCompany {
		c.evict(own)
	}
	for c.size > c.limits.All {
		largest := own
		for _, s := range c.companies {
			if s.size > largest.size {
				largest = s
			}
		}
		c.evict(largest)
	}
}

func (c *Cache[K, V]) evict(s *companyCache) {
	old, _ := s.entries.Remove(s.entries.Back()).(*cacheEntry[K, V])
	delete(c.entries, old.key)
	s.size -= old.size
	c.size -= old.size
	if s.entries.Len() == 0 {
		delete(c.companies, old.id)
	}
}
