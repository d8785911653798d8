package templates

import (
	"container/list"
	"sync"

	"github.com/google/uuid"

	"email-gateway/shared/template"
)

const (
	// maxCached limits the memory of parsed versions, maxCachedPerCompany that of one company's: a company that
	// uses many templates evicts its own.
	maxCached           = 32 << 20
	maxCachedPerCompany = 8 << 20
)

// version identifies a version. Its content never changes, so a cached one is never stale.
type version struct {
	company      uuid.UUID
	name, locale string
	number       int
}

// cache holds parsed versions, the least recently used of a company first in line to go.
type cache struct {
	mu        sync.Mutex
	entries   map[version]*list.Element
	companies map[uuid.UUID]*companyCache
	size      int
}

// companyCache holds the cached versions of one company, most recently used first.
type companyCache struct {
	entries *list.List
	size    int
}

type entry struct {
	id     version
	parsed *template.Template
}

func newCache() *cache {
	return &cache{entries: map[version]*list.Element{}, companies: map[uuid.UUID]*companyCache{}}
}

func (c *cache) get(id version) (*template.Template, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, ok := c.entries[id]
	if !ok {
		return nil, false
	}
	c.companies[id.company].entries.MoveToFront(at)
	cached, _ := at.Value.(entry)
	return cached.parsed, true
}

// put adds a version and evicts others: of its company beyond the company's limit, and beyond the common limit of the
// company with the most.
func (c *cache) put(id version, parsed *template.Template) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.entries[id]; ok || parsed.Size() > maxCachedPerCompany {
		return
	}
	own := c.companies[id.company]
	if own == nil {
		own = &companyCache{entries: list.New()}
		c.companies[id.company] = own
	}
	c.entries[id] = own.entries.PushFront(entry{id, parsed})
	own.size += parsed.Size()
	c.size += parsed.Size()
	for own.size > maxCachedPerCompany {
		c.evict(own)
	}
	for c.size > maxCached {
		largest := own
		for _, s := range c.companies {
			if s.size > largest.size {
				largest = s
			}
		}
		c.evict(largest)
	}
}

func (c *cache) evict(s *companyCache) {
	last := s.entries.Back()
	old, _ := s.entries.Remove(last).(entry)
	delete(c.entries, old.id)
	s.size -= old.parsed.Size()
	c.size -= old.parsed.Size()
	if s.entries.Len() == 0 {
		delete(c.companies, old.id.company)
	}
}
