package pg

import (
	"slices"

	"github.com/google/uuid"
)

// pick takes the next group out of those who wait. g.mu is held.
func (g *Group[T, R]) pick() (group []*groupItem[T, R]) {
	candidates := g.waiting
	if len(g.owners) > 1 {
		candidates = g.inTurns()
	}
	keys, bytes, full := make(map[string]struct{}), 0, make(map[uuid.UUID]bool)
	for _, item := range candidates {
		if len(group) == GroupRows {
			break
		}
		_, twin := keys[item.key]
		tooMuch := len(group) > 0 && bytes+item.size > GroupBytes
		if tooMuch && len(g.owners) < 2 {
			break
		}
		// The items of one company stay in order. Another company's may be smaller.
		if full[item.owner] = full[item.owner] || tooMuch; twin || full[item.owner] {
			continue
		}
		keys[item.key] = struct{}{}
		bytes += item.size
		item.taken = true
		group = append(group, item)
	}
	g.first = group[0].owner
	for _, item := range group {
		g.count(item, -1)
	}
	g.waiting = slices.DeleteFunc(g.waiting, func(item *groupItem[T, R]) bool { return item.taken })
	return group
}

// inTurns lists those who wait one of each company after the other, beginning behind the
// company that the last group began with. So a company with many or large items does not make
// another one's wait for more than the groups in flight and one more. g.mu is held.
func (g *Group[T, R]) inTurns() []*groupItem[T, R] {
	var order []uuid.UUID
	queues := make(map[uuid.UUID][]*groupItem[T, R], len(g.owners))
	for _, item := range g.waiting {
		if queues[item.owner] == nil {
			order = append(order, item.owner)
		}
		// More than a group holds need not be put in order.
		if len(queues[item.owner]) < GroupRows {
			queues[item.owner] = append(queues[item.owner], item)
		}
	}
	from := slices.Index(order, g.first) + 1
	order = slices.Concat(order[from:], order[:from])
	listed := make([]*groupItem[T, R], 0, min(len(g.waiting), GroupRows*len(order)))
	for i := 0; len(listed) < cap(listed); i++ {
		before := len(listed)
		for _, owner := range order {
			if i < len(queues[owner]) {
				listed = append(listed, queues[owner][i])
			}
		}
		if len(listed) == before {
			break
		}
	}
	return listed
}

// count keeps the number of each company's items that wait. g.mu is held.
func (g *Group[T, R]) count(item *groupItem[T, R], change int) {
	if g.owner == nil {
		return
	}
	if g.owners == nil {
		g.owners = make(map[uuid.UUID]int)
	}
	if g.owners[item.owner] += change; g.owners[item.owner] == 0 {
		delete(g.owners, item.owner)
	}
}
