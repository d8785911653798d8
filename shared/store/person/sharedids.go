package person

import (
	"bytes"
	"slices"
	"strings"

	"github.com/google/uuid"

	recipientstore "email-gateway/shared/store/recipient"
)

// identities are the traces without the ids that several people share, each with the external ids that it had.
type identities map[trace][]string

// identities returns the traces by which rows can be assigned to people, given the result of sharedIDs.
func (f *finder) identities(shared map[uuid.UUID]bool) identities {
	found := identities{}
	for t := range f.traces {
		var removed []string
		if t.externalID != "" && shared[recipientstore.ID(f.company, t.externalID, "", "")] {
			removed, t.externalID = []string{t.externalID}, ""
		}
		if shared[t.recipient] {
			t.recipient = uuid.Nil
		}
		found[t] = append(found[t], removed...)
	}
	return found
}

// sharedIDs returns the ids that do not identify one person; an external id is represented by the recipient id that
// is derived from it. See the package's comment for the rule. Recipient ids that are derived from other identifiers
// may be used with several addresses at the same time: two lines of a file may have the same number.
func (f *finder) sharedIDs() map[uuid.UUID]bool {
	groups, external := map[uuid.UUID]groups{}, map[uuid.UUID]bool{}
	for t := range f.traces {
		ids := []uuid.UUID{t.recipient}
		if t.externalID != "" {
			id := recipientstore.ID(f.company, t.externalID, "", "")
			external[id] = true
			ids = append(ids, id)
		}
		for _, id := range slices.DeleteFunc(ids, func(id uuid.UUID) bool { return id == uuid.Nil }) {
			if groups[id] == nil {
				groups[id] = newGroups()
			}
			groups[id].add(strings.ToLower(t.address), f.number(t.hash))
		}
	}
	for _, hash := range f.hashes { // these belong to the person, whatever their rows contain
		delete(groups, recipientstore.ID(f.company, "", hash, ""))
	}
	shared := map[uuid.UUID]bool{}
	for id, g := range groups {
		shared[id] = g.numbered() > 1 || external[id] && f.uses[id].simultaneous(g)
	}
	return shared
}

// number returns the same text for all hashes of the person's number.
func (f *finder) number(hash string) string {
	if slices.Contains(f.hashes, hash) {
		return f.hashes[0]
	}
	return hash
}

// groups are the addresses and numbers that occur with one id. Those that a row connects belong to the same group. An
// address has an @, a number has none.
type groups map[string]string // next member; the last one represents the group

func newGroups() groups { return groups{} }

// add adds the address and the number of a row. Either may be missing.
func (g groups) add(address, number string) {
	for _, member := range []string{address, number} {
		if _, known := g[member]; !known && member != "" {
			g[member] = member
		}
	}
	if address != "" && number != "" {
		g[g.of(address)] = g.of(number)
	}
}

// of returns the representative of the member's group.
func (g groups) of(member string) string {
	for g[member] != member {
		g[member] = g[g[member]]
		member = g[member]
	}
	return member
}

// numbered counts the groups that have a number.
func (g groups) numbered() int {
	found := map[string]bool{}
	for member := range g {
		if !strings.Contains(member, "@") {
			found[g.of(member)] = true
		}
	}
	return len(found)
}

// idUses describe when ids were used with which address, by recipient id.
type idUses map[uuid.UUID]*idUse

type idUse struct {
	times    map[string]span    // by address
	requests map[string]string  // the first address of each request or mailing
	together map[[2]string]bool // addresses of one request or mailing
}

// span holds the first and the last one of the rows' ids, which are UUIDv7.
type span struct{ first, last uuid.UUID }

func (s span) with(other span) span {
	if s == (span{}) {
		return other
	}
	return span{earlier(s.first, other.first), later(s.last, other.last)}
}

func compareIDs(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) }

func earlier(a, b uuid.UUID) uuid.UUID {
	if compareIDs(a, b) < 0 {
		return a
	}
	return b
}

func later(a, b uuid.UUID) uuid.UUID {
	if compareIDs(a, b) > 0 {
		return a
	}
	return b
}

// add adds a row that was accepted when its id was made. Recipients and dead letters, which are made at another time,
// have no request.
func (u idUses) add(company uuid.UUID, r Row) {
	id, address := r.trace.recipient, strings.ToLower(r.trace.address)
	if r.trace.externalID != "" {
		id = recipientstore.ID(company, r.trace.externalID, "", "")
	}
	if r.request == "" || id == uuid.Nil || address == "" {
		return
	}
	if u[id] == nil {
		u[id] = &idUse{times: map[string]span{}, requests: map[string]string{}, together: map[[2]string]bool{}}
	}
	use := u[id]
	use.times[address] = use.times[address].with(span{r.ID, r.ID})
	switch first := use.requests[r.request]; first {
	case "":
		use.requests[r.request] = address
	case address:
	default:
		use.together[[2]string{first, address}] = true
	}
}

// simultaneous reports whether two groups used the id at the same time: in one request or mailing, or alternately.
func (u *idUse) simultaneous(g groups) bool {
	if u == nil {
		return false
	}
	for pair := range u.together {
		if g.of(pair[0]) != g.of(pair[1]) {
			return true
		}
	}
	byGroup := map[string]span{}
	for address, time := range u.times {
		byGroup[g.of(address)] = byGroup[g.of(address)].with(time)
	}
	var last uuid.UUID
	sorted := make([]span, 0, len(byGroup))
	for _, time := range byGroup {
		sorted = append(sorted, time)
	}
	slices.SortFunc(sorted, func(a, b span) int { return compareIDs(a.first, b.first) })
	for _, time := range sorted {
		if compareIDs(time.first, last) < 0 {
			return true
		}
		last = time.last
	}
	return false
}
