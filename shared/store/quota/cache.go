package quota

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"
)

const (
	// quotaFresh is how old the known use of a company may be.
	quotaFresh = 5 * time.Second
	// quotaMargin is the part of a limit, one in so many, that is left when each request is
	// checked in its own transaction. At least so much is: what some processes have in flight
	// and do not see of each other.
	quotaMargin      = 4
	quotaMarginRows  = 20_000
	quotaMarginBytes = 1 << 30
	// quotaShare is the part of what is left that a process adds before it reads the use again,
	// with what the others have added.
	quotaShare = 8
	// quotaCompanies is how many companies are remembered before old ones are dropped.
	quotaCompanies = 4096
)

// cache knows the usage of companies of some seconds ago, plus what this process
// has added since. It refuses nothing: it finds the companies that are close to a quota. The requests of all
// others cost no query.
type cache struct {
	read func(ctx context.Context, company uuid.UUID) (map[Quota]Use, error)

	mu        sync.Mutex
	companies map[uuid.UUID]*cachedUse
}

// cachedUse is one company's. Its lock is held while it is read: others of the company wait
// for that one query.
type cachedUse struct {
	mu    sync.Mutex
	use   map[Quota]Use
	added Demand // since then, by this process
	until time.Time
}

func newCache(read func(ctx context.Context, company uuid.UUID) (map[Quota]Use, error)) *cache {
	return &cache{read: read, companies: map[uuid.UUID]*cachedUse{}}
}

// near reports whether a request may exceed a quota of its company, so that it must be checked in the
// transaction that writes it. Otherwise wanted is added to the known usage. For a nil cache
// no company is close to a quota.
func (c *cache) near(ctx context.Context, company uuid.UUID, wanted Demand) (bool, error) {
	if c == nil {
		return false, nil
	}
	known := c.of(company)
	known.mu.Lock()
	defer known.mu.Unlock()
	if time.Now().After(known.until) || known.spent() {
		use, err := c.read(ctx, company)
		if err != nil {
			return false, err
		}
		known.use, known.added, known.until = use, Demand{}, time.Now().Add(quotaFresh)
	}
	for q, n := range wanted {
		if u := known.use[q]; n > 0 && u.Limit > 0 && u.Limit-u.Use-known.added[q]-n < marginOf(u) {
			return true, nil
		}
	}
	for q, n := range wanted {
		known.added[q] += n
	}
	return false, nil
}

// Near is cache.near for the store's companies.
func (s *Store) Near(ctx context.Context, company uuid.UUID, wanted Demand) (bool, error) {
	return s.quotas.near(ctx, company, wanted)
}

// spent reports whether this process has used up its part of what is left of a quota.
func (k *cachedUse) spent() bool {
	for q, n := range k.added {
		if u := k.use[q]; u.Limit > 0 && n > (u.Limit-u.Use)/quotaShare {
			return true
		}
	}
	return false
}

// marginOf is how much of a quota is left to requests that are checked one by one.
func marginOf(u Use) int64 {
	if u.Quota == StoredBodyBytes {
		return max(u.Limit/quotaMargin, quotaMarginBytes)
	}
	return max(u.Limit/quotaMargin, quotaMarginRows)
}

// of finds a company's entry, or makes one that has yet to be read.
func (c *cache) of(company uuid.UUID) *cachedUse {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.companies[company]
	if known == nil {
		if len(c.companies) >= quotaCompanies {
			c.dropOld()
		}
		known = &cachedUse{}
		c.companies[company] = known
	}
	return known
}

// dropOld drops entries past their time. c.mu is held; an entry in use is left.
func (c *cache) dropOld() {
	now := time.Now()
	for company, known := range c.companies {
		if known.mu.TryLock() {
			if now.After(known.until) {
				delete(c.companies, company)
			}
			known.mu.Unlock()
		}
	}
}

func (c *cache) forget(company uuid.UUID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.companies, company)
}

func (c *cache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.companies)
}
