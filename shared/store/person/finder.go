package person

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/lib/pq"

	"email-gateway/shared/store/recipient"
)

// trace is a set of identifiers of one person in a row of some table; "" and uuid.Nil are
// missing ones.
type trace struct {
	table      Table
	address    string // as stored in the row
	hash       string
	recipient  uuid.UUID
	externalID string
}

// finder collects the identifiers of a person from the rows of one company.
type finder struct {
	company uuid.UUID
	hashKey []byte
	// address, hashes, recipients and externalIDs are the identifiers with which the search
	// begins.
	address     string
	hashes      []string
	recipients  []uuid.UUID
	externalIDs []string

	// traces are as in the rows; see identities for those without the ids that several people share.
	traces map[trace]bool
	uses   idUses
}

// follow searches for the known identifiers, and again for those that it finds, until there are
// no new ones.
func (f *finder) follow(ctx context.Context, s *Store) (Person, error) {
	var searched Person
	for range maxSearches {
		p := f.person()
		next := p
		next.Addresses = slices.Concat(p.Addresses, p.Shared) // to find other people with the same address
		next.ExternalIDs = slices.Concat(p.ExternalIDs, p.SharedIDs)
		if contains(searched.Addresses, next.Addresses) && contains(searched.Recipients, p.Recipients) && contains(searched.ExternalIDs, next.ExternalIDs) && searched.CompanyID != uuid.Nil {
			return p, nil
		}
		if err := f.search(ctx, s, next); err != nil {
			return Person{}, err
		}
		searched = Person{
			CompanyID: f.company, Addresses: slices.Concat(searched.Addresses, next.Addresses),
			Recipients: slices.Concat(searched.Recipients, next.Recipients), ExternalIDs: slices.Concat(searched.ExternalIDs, next.ExternalIDs),
		}
	}
	return Person{}, fmt.Errorf("find person: %w, after %d searches", ErrNotFollowed, maxSearches)
}

func contains[T comparable](all, some []T) bool {
	return !slices.ContainsFunc(some, func(v T) bool { return !slices.Contains(all, v) })
}

// search collects the traces of all tables that contain one of p's addresses, hashes or ids.
// It ignores copies of emails to other people: they do not show to whom an address belongs.
func (f *finder) search(ctx context.Context, s *Store, p Person) error {
	scan := func(table Table, next func(Scan) (Page, error)) error {
		for at := (Scan{Until: uuid.Max}); ; {
			page, err := next(at)
			if err != nil {
				return err
			}
			for _, r := range page.Rows {
				r.trace.table = table
				if r.trace.address == recipient.ErasedAddress {
					r.trace.address = ""
				}
				for _, t := range r.traces() {
					f.traces[t] = true
				}
				f.uses.add(f.company, r)
			}
			if !page.More {
				return nil
			}
			at.After = page.Last
		}
	}
	statements := map[Table]string{
		Emails: personEmailsSQL, Logs: personLogsSQL, DeadLetters: personDeadLettersSQL, Recipients: personRecipientsSQL,
	}
	for table, statement := range statements {
		if err := scan(table, func(at Scan) (Page, error) {
			return s.personPage(ctx, statement, f.company, p, pq.StringArray{}, at)
		}); err != nil {
			return err
		}
	}
	mailings, err := s.Mailings(ctx, f.company)
	if err != nil {
		return err
	}
	for _, m := range mailings {
		if err := scan(Entries, func(at Scan) (Page, error) {
			return s.personPage(ctx, personEntriesSQL, m.ID, p, pq.StringArray{}, at, m.First, m.Last)
		}); err != nil {
			return err
		}
	}
	return nil
}

// ofAddress reports whether the trace's recipient id was derived from its address, so that the address
// alone identifies the person.
func (f *finder) ofAddress(t trace) bool {
	return t.hash == "" && t.externalID == "" && t.recipient == recipient.ID(f.company, "", "", t.address)
}

// identifies reports whether the trace distinguishes people with the same address.
func (f *finder) identifies(t trace) bool {
	return t.hash != "" || t.externalID != "" || t.recipient != uuid.Nil && !f.ofAddress(t)
}

// whoAt returns the identifiers of all people that occur together with the address.
func (f *finder) whoAt() Person {
	p := Person{CompanyID: f.company, Addresses: []string{f.address}}
	for t := range f.traces {
		if strings.ToLower(t.address) == f.address && f.identifies(t) {
			p.Hashes, p.ExternalIDs = append(p.Hashes, t.hash), append(p.ExternalIDs, t.externalID)
			if t.recipient != uuid.Nil {
				p.Recipients = append(p.Recipients, t.recipient)
			}
		}
	}
	return p.sorted()
}

// people returns the people that occur together with the address, each with all identifiers that the
// traces connect: two ids in one row belong to one person.
func (f *finder) people(traces identities) []Person {
	type group struct {
		Person
		at bool
	}
	var groups []*group
	for t := range traces {
		if !f.identifies(t) {
			continue
		}
		g := &group{at: strings.ToLower(t.address) == f.address}
		if t.hash != "" {
			g.Hashes = []string{t.hash}
			g.Recipients = []uuid.UUID{recipient.ID(f.company, "", t.hash, "")}
		}
		if t.externalID != "" {
			g.ExternalIDs = []string{t.externalID}
			g.Recipients = append(g.Recipients, recipient.ID(f.company, t.externalID, "", ""))
		}
		if t.recipient != uuid.Nil {
			g.Recipients = append(g.Recipients, t.recipient)
		}
		groups = slices.DeleteFunc(groups, func(other *group) bool {
			common := slices.ContainsFunc(other.Recipients, func(id uuid.UUID) bool { return slices.Contains(g.Recipients, id) })
			if common {
				g.Hashes, g.Recipients, g.ExternalIDs = append(g.Hashes, other.Hashes...), append(g.Recipients, other.Recipients...), append(g.ExternalIDs, other.ExternalIDs...)
				g.at = g.at || other.at
			}
			return common
		})
		g.Person = g.sorted()
		groups = append(groups, g)
	}
	var people []Person
	for _, g := range groups {
		if g.at {
			people = append(people, g.Person)
		}
	}
	return people
}
