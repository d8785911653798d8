package quota

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"
)

const (
	// quotaFresh is how old the cached usage of a company may be.
	quotaFresh = 5 * time.Second
	// Requests are checked one by one in their transaction if less than 1/quotaMargin of the limit is
	// left, or less than quotaMarginRows or quotaMarginBytes: that covers the requests in flight in
	// several processes, which do not know each other's.
	quotaMargin      = 4
	quotaMarginRows  = 20_000
	quotaMarginBytes = 1 << 30
	// A process reads the usage again, including what other processes added, after it has itself added
	// 1/quotaShare of what was left.
	quotaShare = 8
	// quotaCompanies is how many companies are cached before expired entries are dropped.
	quotaCompanies = 4096
)

// cache holds the usage of companies, read some seconds ago, and what this process has added since.
// It does not refuse requests: it only finds the companies that are close to a quota. Requests of
// other companies need no query.
type cache struct {
	read func(ctx context.Context, company uuid.UUID) (map[Quota]Use, error)

	mu        sync.Mutex
	companies map[uuid.UUID]*cachedUse
}

// cachedUse is the cached usage of one company. mu is held while the usage is read, so that other
// requests of the company wait for that query instead of repeating it.
type cachedUse struct {
	mu    sync.Mutex
	use   map[Quota]Use
	added Demand // since the read, by this process
	until time.Time
}

func newCache(read func(ctx context.Context, company uuid.UUID) (map[Quota]Use, error)) *cache {
	return &cache{read: read, companies: map[uuid.UUID]*cachedUse{}}
}

// near reports whether a request may exceed a quota of its company, so that it must be checked in the
// transaction that writes it. Otherwise it adds wanted to the cached usage. For a nil cache it
// returns false.
func (c *cache) near(ctx context.Context, company uuid.UUID, wanted Demand) (bool, error) {
	if c == nil {
		return false, nil
	}
	known := c.of(company)
	known.mu.Lock()
	defer known.mu.Unlock()
	if time.Now().After(known.until) || known.shareUsed() {
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

// Near reports whether a request may exceed a quota of its company, so that it must be checked in the
// transaction that writes it.
func (s *Store) Near(ctx context.Context, company uuid.UUID, wanted Demand) (bool, error) {
	if wanted[StoredFileBytes] > 0 {
		return s.files.near(ctx, company, wanted)
	}
	return s.quotas.near(ctx, company, wanted)
}

// shareUsed reports whether this process has added more than 1/quotaShare of what was left of a quota.
func (k *cachedUse) shareUsed() bool {
	for q, n := range k.added {
		if u := k.use[q]; u.Limit > 0 && n > (u.Limit-u.Use)/quotaShare {
			return true
		}
	}
	return false
}

// marginOf returns how much of a quota is reserved for requests that are checked one by one.
func marginOf(u Use) int64 {
	if u.Quota == StoredBodyBytes || u.Quota == StoredFileBytes {
		return max(u.Limit/quotaMargin, quotaMarginBytes)
	}
	return max(u.Limit/quotaMargin, quotaMarginRows)
}

// of returns a company's entry, or adds one whose usage has not been read.
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

// dropOld drops expired entries, except those in use. The caller holds c.mu.
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
