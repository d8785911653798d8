package dispatcher

import (
	"cmp"
	"slices"

	"github.com/google/uuid"

	"email-gateway/shared/store/dispatch"
)

// roundRobin shares the room on a queue among companies, and each company's part among its lanes, round-robin. It
// stores when each company, and each lane of companies with more lanes than room, last had a turn, so that the others
// go first in the next round.
type roundRobin struct {
	turn      int64               // the last turn
	companies map[uuid.UUID]int64 // last turn by company
	lanes     map[int64]int64     // last turn by lane, for companies with more lanes than room
	// used is the number of recipients that each company has enqueued, while emails have several. The company with the fewest
	// recipients then goes first, because the provider counts recipients.
	used map[uuid.UUID]int
}

// laneShare is a lane's part of a round.
type laneShare struct {
	liveLane
	limit int // rows
}

// group has the lanes of a company.
type group struct {
	company uuid.UUID
	lanes   []liveLane // a subset of the slice passed to share
	order   int        // index among all groups
	last    int64
	used    int
}

// share selects lanes for a round with room for that many emails, and how many each may add. live must not be empty, room must
// be at least one, and lanes of a company must be adjacent. A company without a turn in the last round goes first. Room that
// lanes do not use is shared in the next round.
func (t *roundRobin) share(live []liveLane, room int) (chosen []laneShare) {
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
			chosen = append(chosen, laneShare{liveLane: l, limit: part / len(g.lanes)})
		}
	}
	return chosen
}

// remembered is how many companies and lanes that are not live keep their last turn. Without it, a company whose lanes are
// empty at times would go before others that still wait.
const remembered = 10_000

// groups groups the lanes by company.
func (t *roundRobin) groups(live []liveLane) (groups []group) {
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

// admit sets the recipient count of a company that has become live to the lowest count of the others, and removes companies
// that are not live.
func (t *roundRobin) admit(groups []group) {
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

// addRecipients adds the recipients that companies have enqueued. While emails have one recipient each, taking turns is
// sufficient.
func (t *roundRobin) addRecipients(several bool, recipients map[uuid.UUID]int) {
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

// laneTakes returns what to take for these shares.
func laneTakes(chosen []laneShare) []dispatch.LaneTake {
	takes := make([]dispatch.LaneTake, len(chosen))
	for i, v := range chosen {
		takes[i] = dispatch.LaneTake{LaneProbe: dispatch.LaneProbe{ID: v.id, Since: v.since}, Limit: v.limit}
	}
	return takes
}
