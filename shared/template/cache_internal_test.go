package template

import (
	"testing"

	"github.com/google/uuid"
)

// A company that uses many templates evicts its own from the cache, and nothing of a company that uses one.
func TestCache_FairAndBounded(t *testing.T) {
	t.Parallel()
	const size = 500 << 10
	limits := CacheLimits{All: 32 << 20, PerCompany: 8 << 20}
	c := NewCache[int, string](limits)
	quiet, busy := uuid.New(), uuid.New()
	c.Put(quiet, -1, "quiet", size)
	for i := range 200 {
		c.Put(quiet, -2, "other", size) // twice is once
		c.Put(busy, i, "busy", size)
	}
	if kept, ok := c.Get(-1); !ok || kept != "quiet" {
		t.Error("the quiet company's template was evicted")
	}
	if _, ok := c.Get(199); !ok {
		t.Error("the newest template is not cached")
	}
	if own := c.companies[busy]; own.size > limits.PerCompany || own.entries.Len() < 10 {
		t.Errorf("%d bytes in %d entries of one company", own.size, own.entries.Len())
	}
	c.Put(busy, 1000, "too large", limits.PerCompany+1)
	if _, ok := c.Get(1000); ok || c.companies[busy].entries.Len() < 10 {
		t.Error("a template that is too large evicts others")
	}
	// Many companies stay within the common limit.
	for i := range 200 {
		c.Put(uuid.New(), 2000+i, "x", size)
	}
	sum := 0
	for _, s := range c.companies {
		sum += s.size
	}
	if c.size != sum || sum > limits.All || len(c.entries) < 50 {
		t.Errorf("%d bytes counted, %d kept in %d entries", c.size, sum, len(c.entries))
	}
}
