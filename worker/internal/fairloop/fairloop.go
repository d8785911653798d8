// Package fairloop divides the time of a loop between companies, when the loop works on a list of items one after another.
package fairloop

import (
	"slices"
	"time"

	"github.com/google/uuid"
)

// PassTime is how long a pass lasts, unless the companies' first turns take longer. It is the time after which an item
// that was added during a pass is listed, and so begins.
const PassTime = time.Second

// Pass calls work for the first item of each company, then for the second of each, and so on, in the order of items.
// After the first turn of each company it ends as soon as it has lasted for limit. So a company with many items delays
// each of the others by one item, and for no longer than limit those that were added meanwhile. Pass reports whether
// items are left: the caller lists them again at once.
func Pass[T any](items []T, company func(T) uuid.UUID, limit time.Duration, work func(T)) (left bool) {
	type turn struct {
		item   T
		number int
	}
	start := time.Now()
	taken := map[uuid.UUID]int{}
	order := make([]turn, len(items))
	for i, item := range items {
		c := company(item)
		order[i] = turn{item, taken[c]}
		taken[c]++
	}
	slices.SortStableFunc(order, func(a, b turn) int { return a.number - b.number })
	for _, next := range order {
		if next.number > 0 && time.Since(start) >= limit {
			return true
		}
		work(next.item)
	}
	return false
}
