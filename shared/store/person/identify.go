package person

import (
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"

	"email-gateway/shared/store/recipient"
)

// knownIDs are the identifiers that were considered so far; those that are true identify the person.
type knownIDs struct {
	hashes      map[string]bool
	recipients  map[uuid.UUID]bool
	externalIDs map[string]bool
}

// person returns the identifiers found so far.
func (f *finder) person() Person {
	s := f.sharing()
	traces := s.identities()
	begin := Person{Hashes: f.given}
	for _, hash := range f.given {
		begin.Recipients = append(begin.Recipients, f.derived("", hash))
	}
	if f.address != "" {
		people := s.people(traces)
		if len(people) > 1 {
			return s.several(traces, len(people))
		}
		for _, one := range people {
			begin = one
		}
	}
	return s.result(traces, s.identify(traces, begin))
}

// identify returns the ids of the person: those with which the search begins, and those that occur with the person's
// number or with another of these ids. Ids of several people, and ids that may belong to a person with another number,
// are excluded.
func (s *sharing) identify(traces identities, begin Person) knownIDs {
	ids := knownIDs{map[string]bool{}, map[uuid.UUID]bool{}, map[string]bool{}}
	for _, hash := range begin.Hashes {
		ids.hashes[hash] = true
	}
	owners := ownersOf(traces, ids.hashes)
	for _, id := range begin.Recipients {
		ids.recipients[id] = !s.sharesID(id) && !owners.contested(id, "")
	}
	for _, id := range begin.ExternalIDs {
		ids.externalIDs[id] = !owners.contested(s.derived(id, ""), id)
	}
	for grown := true; grown; {
		grown = false
		for t := range traces {
			if !ids.own(t) {
				continue
			}
			if id := t.externalID; id != "" && !ids.externalIDs[id] && !owners.contested(s.derived(id, ""), id) {
				ids.externalIDs[id], ids.recipients[s.derived(id, "")], grown = true, true, true
			}
			if id := t.recipient; id != uuid.Nil && !ids.recipients[id] && !s.ofAddress(t) && !owners.contested(id, "") {
				ids.recipients[id], grown = true, true
			}
		}
	}
	return ids
}

// own reports whether a trace is of the person: it has the person's number or one of the person's ids.
func (k knownIDs) own(t trace) bool {
	return k.hashes[t.hash] || k.recipients[t.recipient] || k.externalIDs[t.externalID]
}

// addresses returns the addresses of the person, in lower case, and those of them that occur in traces of other people too. The
// address with which the search begins is the person's in any case. found means that there is a trace of the person.
func (s *sharing) addresses(traces identities, ids knownIDs) (known, shared map[string]bool, found bool) {
	known, shared = map[string]bool{s.address: s.address != ""}, map[string]bool{}
	codes := map[uuid.UUID]bool{} // shared ids in the person's traces: they do not show that another person has the address
	for t, rows := range traces {
		a := strings.ToLower(t.address)
		if own := ids.own(t); own || a != "" && a == s.address {
			known[a], found = true, found || own
			for _, row := range rows {
				for _, id := range s.ids(row) {
					codes[id] = s.shared[id]
				}
			}
		}
	}
	foreign := func(row trace) bool {
		return slices.ContainsFunc(s.ids(row), func(id uuid.UUID) bool { return s.shared[id] && !codes[id] })
	}
	for t, rows := range traces {
		a := strings.ToLower(t.address)
		if known[a] && a != s.address && !ids.own(t) && (s.identifies(t) || slices.ContainsFunc(rows, foreign)) {
			shared[a] = true
		}
	}
	return known, shared, found
}

// result returns the person with these ids, and adds to ids those that are derived from an address that only the person has.
func (s *sharing) result(traces identities, ids knownIDs) Person {
	p := Person{CompanyID: s.company, Hashes: slices.Collect(maps.Keys(ids.hashes))}
	known, shared, found := s.addresses(traces, ids)
	if found {
		p.Numbers = 1
	}
	for t, rows := range traces {
		a := strings.ToLower(t.address)
		alone := known[a] && !shared[a] && a != ""
		if alone {
			ids.recipients[recipient.ID(s.company, "", "", t.address)] = true
		}
		if alone || ids.own(t) {
			for _, row := range rows {
				s.addShared(&p, row)
			}
		}
	}
	for a := range known {
		switch {
		case shared[a]:
			p.Shared = append(p.Shared, a)
		case known[a]:
			p.Addresses = append(p.Addresses, a)
		}
	}
	for id, is := range ids.recipients {
		if is && id != uuid.Nil {
			p.Recipients = append(p.Recipients, id)
		}
	}
	for id, is := range ids.externalIDs {
		if is {
			p.ExternalIDs = append(p.ExternalIDs, id)
		}
	}
	return p.sorted()
}

// several returns what is common to the people who share the address: it and its current recipients.
func (s *sharing) several(traces identities, people int) Person {
	p := Person{CompanyID: s.company, Addresses: []string{s.address}, Numbers: people, Recipients: []uuid.UUID{recipient.ID(s.company, "", "", s.address)}}
	for t, rows := range traces {
		if strings.ToLower(t.address) != s.address {
			continue
		}
		for _, row := range rows {
			s.addShared(&p, row)
		}
		if t.table == Recipients {
			p.Recipients, p.ExternalIDs = append(p.Recipients, t.recipient), append(p.ExternalIDs, t.externalID)
		}
	}
	return p.sorted()
}

// owners describes the numbers that occur together with an id in the traces.
type owners struct {
	mine    bool // the current row of its recipient has this person's number
	foreign bool // a row of some table has another number
}

// idOwners are the owners of each recipient and external id.
type idOwners struct {
	recipients  map[uuid.UUID]owners
	externalIDs map[string]owners
}

func ownersOf(traces identities, hashes map[string]bool) idOwners {
	o := idOwners{recipients: map[uuid.UUID]owners{}, externalIDs: map[string]owners{}}
	for t := range traces {
		if t.hash == "" || len(hashes) == 0 {
			continue
		}
		foreign := !hashes[t.hash]
		add := func(w owners) owners {
			return owners{mine: w.mine || !foreign && t.table == Recipients, foreign: w.foreign || foreign}
		}
		o.recipients[t.recipient] = add(o.recipients[t.recipient])
		if t.externalID != "" {
			o.externalIDs[t.externalID] = add(o.externalIDs[t.externalID])
		}
	}
	return o
}

// contested reports whether an id may belong to a person with another number: a row has the id with
// another number, and the recipient's current row does not have this person's number. For an external
// id, the recipient is the one whose id is derived from it.
func (o idOwners) contested(id uuid.UUID, externalID string) bool {
	r, e := o.recipients[id], o.externalIDs[externalID]
	return !r.mine && !e.mine && (r.foreign || e.foreign)
}
