package person

import (
	"slices"
	"strings"

	"github.com/google/uuid"

	"email-gateway/shared/store/recipient"
)

// knownIDs are the ids that were considered so far; those that are true identify the person.
type knownIDs struct {
	recipients  map[uuid.UUID]bool
	externalIDs map[string]bool
}

// person returns the identifiers found so far.
func (f *finder) person() Person {
	ofSeveral := f.sharedIDs()
	traces := f.identities(ofSeveral)
	return f.result(traces, f.identify(traces, ofSeveral))
}

// identify returns the ids of the person: those with which the search begins, and those that occur with the person's
// number or with another of these ids. Ids of several people, and ids that may belong to a person with another number,
// are excluded.
func (f *finder) identify(traces identities, ofSeveral map[uuid.UUID]bool) knownIDs {
	ids, owners := knownIDs{map[uuid.UUID]bool{}, map[string]bool{}}, f.owners(traces)
	for _, id := range f.recipients {
		ids.recipients[id] = !ofSeveral[id] && !owners.contested(id, "")
	}
	for _, id := range f.externalIDs {
		derived := recipient.ID(f.company, id, "", "")
		ids.externalIDs[id] = !ofSeveral[derived] && !owners.contested(derived, id)
	}
	for grown := true; grown; {
		grown = false
		for t := range traces {
			if !f.own(t, ids) {
				continue
			}
			if id := t.externalID; id != "" && !ids.externalIDs[id] && !owners.contested(recipient.ID(f.company, id, "", ""), id) {
				ids.externalIDs[id], ids.recipients[recipient.ID(f.company, id, "", "")], grown = true, true, true
			}
			if id := t.recipient; id != uuid.Nil && !ids.recipients[id] && !f.ofAddress(t) && !owners.contested(id, "") {
				ids.recipients[id], grown = true, true
			}
		}
	}
	return ids
}

// own reports whether a trace is of the person: it has the person's number or one of the person's ids.
func (f *finder) own(t trace, ids knownIDs) bool {
	return slices.Contains(f.hashes, t.hash) || ids.recipients[t.recipient] || ids.externalIDs[t.externalID]
}

// addresses returns the addresses of the person, in lower case, and those of them that occur in traces of other people too. The
// address with which the search begins is the person's in any case. found means that there is a trace of the person.
func (f *finder) addresses(traces identities, ids knownIDs) (known, shared map[string]bool, found bool) {
	known, shared = map[string]bool{f.address: f.address != ""}, map[string]bool{}
	for t := range traces {
		if f.own(t, ids) {
			known[strings.ToLower(t.address)], found = true, true
		}
	}
	for t := range traces {
		if a := strings.ToLower(t.address); known[a] && a != f.address && !f.own(t, ids) && f.identifies(t) {
			shared[a] = true
		}
	}
	return known, shared, found
}

// result returns the person with these ids, and adds to ids those that are derived from an address that only the person has.
func (f *finder) result(traces identities, ids knownIDs) Person {
	p := Person{CompanyID: f.company, Hashes: slices.Clone(f.hashes)}
	known, shared, found := f.addresses(traces, ids)
	if found {
		p.Numbers = 1
	}
	for t, removed := range traces {
		if a := strings.ToLower(t.address); known[a] && !shared[a] && a != "" {
			ids.recipients[recipient.ID(f.company, "", "", t.address)] = true
			p.SharedIDs = append(p.SharedIDs, removed...)
		}
		if f.own(t, ids) {
			p.SharedIDs = append(p.SharedIDs, removed...)
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

func (f *finder) owners(traces identities) idOwners {
	o := idOwners{recipients: map[uuid.UUID]owners{}, externalIDs: map[string]owners{}}
	for t := range traces {
		if t.hash == "" || len(f.hashes) == 0 {
			continue
		}
		foreign := !slices.Contains(f.hashes, t.hash)
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
