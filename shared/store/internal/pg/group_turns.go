package pg

import (
	"slices"

	"github.com/google/uuid"
)

// pick removes the next group from the waiting items. g.mu is held.
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
		_, same := keys[item.key]
		tooMuch := len(group) > 0 && bytes+item.size > GroupBytes
		if tooMuch && len(g.owners) < 2 {
			break
		}
		// The items of one company stay in order. An item of another company may be smaller and still fit.
		if full[item.owner] = full[item.owner] || tooMuch; same || full[item.owner] {
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

// inTurns lists the waiting items, one of each company in turn, beginning after the company that the last group began
// with. A company with many or large items therefore delays the items of another one by the groups in flight and one
// more at most. g.mu is held.
func (g *Group[T, R]) inTurns() []*groupItem[T, R] {
	var order []uuid.UUID
	queues := make(map[uuid.UUID][]*groupItem[T, R], len(g.owners))
	for _, item := range g.waiting {
		if queues[item.owner] == nil {
			order = append(order, item.owner)
		}
		// A group holds at most GroupRows items, so further items of a company need not be listed.
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

// count updates the number of waiting items of the item's company. g.mu is held.
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
