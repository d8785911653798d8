package person

import (
	"bytes"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store/recipient"
)

// identities are the traces without the ids that several people share, each with the external ids that it had.
type identities map[trace][]string

// identities returns the traces by which rows can be assigned to people, given the result of sharedIDs.
func (f *finder) identities(shared map[uuid.UUID]bool) identities {
	found := identities{}
	for t := range f.traces {
		var removed []string
		if t.externalID != "" && shared[recipient.ID(f.company, t.externalID, "", "")] {
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
	byID, external, numbers := map[uuid.UUID]groups{}, map[uuid.UUID]bool{}, f.numbers()
	for t := range f.traces {
		ids := []uuid.UUID{t.recipient}
		if t.externalID != "" {
			id := recipient.ID(f.company, t.externalID, "", "")
			external[id] = true
			ids = append(ids, id)
		}
		for _, id := range slices.DeleteFunc(ids, func(id uuid.UUID) bool { return id == uuid.Nil }) {
			if byID[id] == nil {
				byID[id] = groups{}
			}
			byID[id].add(strings.ToLower(t.address), numbers[t.hash])
		}
	}
	for _, hash := range f.hashes { // these belong to the person, whatever their rows contain
		delete(byID, recipient.ID(f.company, "", hash, ""))
	}
	shared := map[uuid.UUID]bool{}
	for id, g := range byID {
		shared[id] = g.numbers() > 1 || external[id] && f.uses[id].simultaneous(g)
	}
	return shared
}

// numbers returns a number for each hash that was found: the same one for all hashes of the person, and for a plain hash,
// which programs store, the keyed one.
func (f *finder) numbers() map[string]string {
	numbers, own := map[string]string{}, map[string]bool{}
	for t := range f.traces {
		numbers[t.hash] = t.hash
	}
	for _, hash := range f.hashes {
		numbers[hash] = hash
	}
	for hash := range numbers {
		if keyed := email.KeyTaxIDHash(hash, f.hashKey); hash != "" && numbers[keyed] != "" {
			numbers[hash] = keyed
		}
	}
	for _, hash := range f.hashes {
		own[numbers[hash]] = true
	}
	for hash, number := range numbers {
		if own[number] {
			numbers[hash] = f.hashes[0]
		}
	}
	return numbers
}

// groups are the addresses and numbers that occur with one id. Those of one trace belong to the same group. An address has
// an @, a number has none.
type groups map[string]string // next member; the last one represents the group

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

// numbers counts the numbers of all groups: people with different numbers may have an address in common.
func (g groups) numbers() int {
	n := 0
	for member := range g {
		if !strings.Contains(member, "@") {
			n++
		}
	}
	return n
}

// idUses describe when ids were used with which address, by recipient id.
type idUses map[uuid.UUID]*idUse

type idUse struct {
	times    map[string]span    // by address
	requests map[request]string // the first address of each request or mailing
	together map[[2]string]bool // addresses of one request or mailing
}

// request is a mailing, or a request at one time: a client may give all of its requests the same id.
type request struct {
	id   string
	time int64 // in requestTime; 0 for a mailing
}

// requestTime is longer than most jobs that send emails under one request id, and twice of it is shorter than the time
// between two daily runs.
const requestTime = 6 * time.Hour

// requests returns the requests to which a row with a request id belongs. Rows made less than requestTime apart have one in
// common, rows made twice as long apart have none.
func (r Row) requests() []request {
	if r.trace.table == Entries {
		return []request{{id: r.request}}
	}
	seconds, _ := r.ID.Time().UnixTime()
	at := seconds / int64(requestTime.Seconds())
	return []request{{r.request, at}, {r.request, at + 1}}
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
		id = recipient.ID(company, r.trace.externalID, "", "")
	}
	if r.request == "" || id == uuid.Nil || address == "" {
		return
	}
	if u[id] == nil {
		u[id] = &idUse{times: map[string]span{}, requests: map[request]string{}, together: map[[2]string]bool{}}
	}
	use := u[id]
	use.times[address] = use.times[address].with(span{r.ID, r.ID})
	for _, request := range r.requests() {
		switch first := use.requests[request]; first {
		case "":
			use.requests[request] = address
		case address:
		default:
			use.together[[2]string{first, address}] = true
		}
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
	for address, used := range u.times {
		byGroup[g.of(address)] = byGroup[g.of(address)].with(used)
	}
	var last uuid.UUID
	sorted := make([]span, 0, len(byGroup))
	for _, used := range byGroup {
		sorted = append(sorted, used)
	}
	slices.SortFunc(sorted, func(a, b span) int { return compareIDs(a.first, b.first) })
	for _, used := range sorted {
		if compareIDs(used.first, last) < 0 {
			return true
		}
		last = used.last
	}
	return false
}
