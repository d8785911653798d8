package person

import (
	"slices"
	"strings"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store/recipient"
)

// sharing decides which identifiers several people share. Each identifier is represented by the recipient id that is derived
// from it, and all forms of a number by the id of one of them.
type sharing struct {
	*finder
	numbers map[uuid.UUID]uuid.UUID // the ids of all forms of numbers, and the one that represents each
	rows    map[uuid.UUID][]trace   // by identifier
	shared  map[uuid.UUID]bool
}

// sharing applies the rule of the package's comment to the traces.
func (f *finder) sharing() *sharing {
	s := &sharing{finder: f, numbers: f.numbers(), rows: map[uuid.UUID][]trace{}, shared: map[uuid.UUID]bool{}}
	for t := range f.traces {
		for _, id := range s.ids(t) {
			s.rows[id] = append(s.rows[id], t)
		}
	}
	// First each address is a group, in a search by number all addresses with one number. Then the identifiers that are not
	// shared join addresses too.
	joins := func(id uuid.UUID) bool { return len(f.given) > 0 && s.isNumber(id) }
	for range 2 {
		found := map[uuid.UUID]bool{}
		for id := range s.rows {
			found[id] = s.isShared(id, joins)
		}
		for id, is := range found {
			s.shared[id] = s.shared[id] || is
		}
		joins = func(id uuid.UUID) bool { return !s.shared[id] }
	}
	return s
}

// numbers returns the id that represents each form of a number: for a plain hash, which programs store, that of the keyed
// one, and for all given hashes that of the first.
func (f *finder) numbers() map[uuid.UUID]uuid.UUID {
	hashes := map[string]bool{}
	for _, hash := range f.given {
		hashes[hash] = true
	}
	for t := range f.traces {
		hashes[t.hash] = t.hash != ""
	}
	numbers, given := map[uuid.UUID]uuid.UUID{}, map[uuid.UUID]bool{}
	for hash, is := range hashes {
		if !is {
			continue
		}
		id := f.derived("", hash)
		numbers[id] = id
		if keyed := email.KeyTaxIDHash(hash, f.hashKey); hashes[keyed] {
			numbers[id] = f.derived("", keyed)
		}
	}
	for _, hash := range f.given {
		given[numbers[f.derived("", hash)]] = true
	}
	for id, number := range numbers {
		if given[number] {
			numbers[id] = f.derived("", f.given[0])
		}
	}
	return numbers
}

// derived returns the recipient id of an external id or a number.
func (f *finder) derived(externalID, hash string) uuid.UUID {
	return recipient.ID(f.company, externalID, hash, "")
}

func (s *sharing) isNumber(id uuid.UUID) bool { return s.numbers[id] == id }

// ids returns the identifiers of a trace other than its address.
func (s *sharing) ids(t trace) []uuid.UUID {
	ids := make([]uuid.UUID, 0, 3)
	if t.hash != "" {
		ids = append(ids, s.derived("", t.hash))
	}
	if t.externalID != "" {
		ids = append(ids, s.derived(t.externalID, ""))
	}
	if t.recipient != uuid.Nil {
		ids = append(ids, t.recipient)
	}
	for i, id := range ids {
		if number, is := s.numbers[id]; is {
			ids[i] = number
		}
	}
	slices.SortFunc(ids, compareIDs)
	return slices.Compact(ids)
}

// isShared reports whether several people have the identifier. joins reports whether an identifier joins the addresses of its
// rows to one group.
func (s *sharing) isShared(id uuid.UUID, joins func(uuid.UUID) bool) bool {
	if len(s.given) > 0 && s.numbers[s.derived("", s.given[0])] == id {
		return false // it is the person's, whatever its rows contain
	}
	if s.conflicting(id) {
		return true
	}
	rows := s.rows[id]
	if len(s.given) > 0 && !slices.ContainsFunc(rows, func(t trace) bool { return t.externalID != "" && s.derived(t.externalID, "") == id }) {
		return false // two lines of a file may have the same number, and the recipient id that is derived from it
	}
	if s.isNumber(id) {
		rows = s.withIDs(rows, id, joins)
	}
	g, externalIDs := groups{}, []uuid.UUID{}
	for _, t := range rows {
		members := []string{strings.ToLower(t.address)}
		for _, other := range s.ids(t) {
			if other != id && joins(other) {
				members = append(members, other.String())
			}
		}
		g.join(members...)
		if own := s.derived(t.externalID, ""); t.externalID != "" && own != id && joins(own) {
			externalIDs = append(externalIDs, own)
		}
	}
	if s.isNumber(id) && slices.ContainsFunc(externalIDs, func(own uuid.UUID) bool { return g.of(own.String()) != g.of(externalIDs[0].String()) }) {
		return true
	}
	return s.simultaneous(rows, g)
}

// conflicting reports whether the rows of an identifier have different numbers: people with different numbers may have an
// address in common.
func (s *sharing) conflicting(id uuid.UUID) bool {
	numbers := map[uuid.UUID]bool{}
	for _, t := range s.rows[id] {
		if t.hash != "" {
			numbers[s.numbers[s.derived("", t.hash)]] = true
		}
	}
	return len(numbers) > 1
}

// withIDs adds to the rows of a number those of the ids that occur with it and join addresses: logs have no number, and
// neither has an email to a recipient whose number is known.
func (s *sharing) withIDs(rows []trace, number uuid.UUID, joins func(uuid.UUID) bool) []trace {
	all, seen := slices.Clone(rows), map[uuid.UUID]bool{number: true}
	for _, t := range rows {
		for _, id := range s.ids(t) {
			if !seen[id] && joins(id) {
				all = append(all, s.rows[id]...)
			}
			seen[id] = true
		}
	}
	return all
}

// sharesID reports whether several people have the identifier, which may be any form of a number.
func (s *sharing) sharesID(id uuid.UUID) bool {
	if number, is := s.numbers[id]; is {
		id = number
	}
	return s.shared[id]
}

// sharesNumber reports whether several people have the number. In a search by number each number is a person's.
func (s *sharing) sharesNumber(hash string) bool {
	return hash != "" && len(s.given) == 0 && s.sharesID(s.derived("", hash))
}

func (s *sharing) sharesExternalID(externalID string) bool {
	return externalID != "" && s.sharesID(s.derived(externalID, ""))
}

// identities are the traces without the identifiers that several people share, each with the traces that it was.
type identities map[trace][]trace

// identities returns the traces by which rows can be assigned to people.
func (s *sharing) identities() identities {
	found := identities{}
	for whole := range s.traces {
		t := whole
		if s.sharesNumber(t.hash) {
			t.hash = ""
		}
		if s.sharesExternalID(t.externalID) {
			t.externalID = ""
		}
		if s.sharesID(t.recipient) {
			t.recipient = uuid.Nil
		}
		found[t] = append(found[t], whole)
	}
	return found
}

// addShared adds the identifiers of a trace that other people have too.
func (s *sharing) addShared(p *Person, t trace) {
	if s.sharesNumber(t.hash) {
		p.SharedNumbers, p.SharedRecipients = append(p.SharedNumbers, t.hash), append(p.SharedRecipients, s.derived("", t.hash))
	}
	if s.sharesExternalID(t.externalID) {
		p.SharedIDs, p.SharedRecipients = append(p.SharedIDs, t.externalID), append(p.SharedRecipients, s.derived(t.externalID, ""))
	}
	if s.sharesID(t.recipient) {
		p.SharedRecipients = append(p.SharedRecipients, t.recipient)
	}
}

// groups are sets of addresses and ids that belong to one person.
type groups map[string]string // next member; the last one represents the group

// join joins the groups of the members; "" is none.
func (g groups) join(members ...string) {
	first := ""
	for _, member := range members {
		switch {
		case member == "":
		case first == "":
			first = g.of(member)
		default:
			g[g.of(member)] = g.of(first)
		}
	}
}

// of returns the representative of the member's group.
func (g groups) of(member string) string {
	if g[member] == "" {
		g[member] = member
	}
	for g[member] != member {
		g[member] = g[g[member]]
		member = g[member]
	}
	return member
}
