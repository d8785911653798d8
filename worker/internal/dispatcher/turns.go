package dispatcher

import (
	"cmp"
	"slices"

	"github.com/google/uuid"

	"email-gateway/shared/store"
)

// turns shares the room on a queue among companies, and each company's among its lanes, and
// remembers who had a turn when there are more of them than room.
type turns struct {
	turn      int64               // the last one
	companies map[uuid.UUID]int64 // the last turn of each
	lanes     map[int64]int64     // and of each lane of companies with several
	// used is how many recipients each company has put on the queue, while emails have
	// several: companies then take turns by recipients, which are what the provider counts.
	used map[uuid.UUID]int
}

// visit is a lane's part in a round.
type visit struct {
	liveLane
	most int // rows
}

// group is the lanes of a company.
type group struct {
	company uuid.UUID
	lanes   []liveLane // a part of those that share got
	order   int        // among all groups
	last    int64
	used    int
}

// share says which of the lanes (at least one, those of a company beside each other) take part
// in a round with room for that many emails (at least one), and how many each may bring. A company
// that had no lane in the last round goes first. The room that lanes with fewer emails leave
// is shared in the next round.
func (t *turns) share(live []liveLane, room int) (chosen []visit) {
	groups := t.groups(live)
	slices.SortFunc(groups, func(a, b group) int {
		return cmp.Or(cmp.Compare(a.used, b.used), cmp.Compare(a.last, b.last), cmp.Compare(a.order, b.order))
	})
	groups = groups[:min(len(groups), room)]
	part := room / len(groups)
	for _, g := range groups {
		t.turn++
		t.companies[g.company] = t.turn
		if len(g.lanes) > part {
			g.lanes = slices.Clone(g.lanes)
			slices.SortStableFunc(g.lanes, func(a, b liveLane) int { return cmp.Compare(t.lanes[a.id], t.lanes[b.id]) })
			g.lanes = g.lanes[:part]
			for _, l := range g.lanes {
				t.lanes[l.id] = t.turn
			}
		}
		for _, l := range g.lanes {
			chosen = append(chosen, visit{liveLane: l, most: part / len(g.lanes)})
		}
	}
	return chosen
}

// remembered is how many companies, and lanes, that are not live keep their last turn. Without it a
// company whose lanes are empty now and then would have its turn before others that still wait.
const remembered = 10_000

// groups returns the lanes by company.
func (t *turns) groups(live []liveLane) (groups []group) {
	for begin := 0; begin < len(live); {
		end := begin + 1
		for end < len(live) && live[end].company == live[begin].company {
			end++
		}
		company := live[begin].company
		groups = append(groups, group{company: company, lanes: live[begin:end], order: len(groups), last: t.companies[company]})
		begin = end
	}
	if t.companies == nil || len(t.companies) > len(groups)+remembered {
		t.companies = make(map[uuid.UUID]int64, len(groups))
		for _, g := range groups {
			t.companies[g.company] = g.last
		}
	}
	if t.lanes == nil || len(t.lanes) > len(live)+remembered {
		before := t.lanes
		t.lanes = make(map[int64]int64)
		for _, l := range live {
			if last, known := before[l.id]; known {
				t.lanes[l.id] = last
			}
		}
	}
	if t.used != nil {
		t.admit(groups)
	}
	return groups
}

// admit has a company that was away begin with the recipients of the one that has used least.
func (t *turns) admit(groups []group) {
	least, found := 0, false
	for _, g := range groups {
		if used, is := t.used[g.company]; is && (!found || used < least) {
			least, found = used, true
		}
	}
	used := make(map[uuid.UUID]int, len(groups))
	for i, g := range groups {
		n, known := t.used[g.company]
		if !known {
			n = least
		}
		used[g.company], groups[i].used = n, n
	}
	t.used = used
}

// charge notes the recipients that companies have put on the queue. While emails have one
// recipient each, turns are enough.
func (t *turns) charge(several bool, recipients map[uuid.UUID]int) {
	if !several {
		t.used = nil
		return
	}
	if t.used == nil {
		t.used = make(map[uuid.UUID]int)
	}
	for company, n := range recipients {
		t.used[company] += n
	}
}

// laneTurns is what the outbox is asked for.
func laneTurns(chosen []visit) []store.LaneTurn {
	turns := make([]store.LaneTurn, len(chosen))
	for i, v := range chosen {
		turns[i] = store.LaneTurn{LaneProbe: store.LaneProbe{ID: v.id, Since: v.since}, Most: v.most}
	}
	return turns
}
