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
	address string   // with which the search begins, in lower case, or
	given   []string // the hashes of the number with which it begins

	// traces are as in the rows; see identities for those without the ids that several people share.
	traces map[trace]*use
}

// follow searches for the known identifiers, and again for those that it finds, until there are
// no new ones. It reads the rows of shared identifiers and addresses too, to find out who shares them.
func (f *finder) follow(ctx context.Context, s *Store) (Person, error) {
	var searched Person
	for range maxSearches {
		p := f.person()
		next := f.whoAt()
		next.Addresses, next.Hashes = slices.Concat(next.Addresses, p.Addresses, p.Shared), slices.Concat(next.Hashes, p.Hashes, p.SharedNumbers)
		next.Recipients = slices.Concat(next.Recipients, p.Recipients, p.SharedRecipients)
		next.ExternalIDs = slices.Concat(next.ExternalIDs, p.ExternalIDs, p.SharedIDs)
		if contains(searched.Addresses, next.Addresses) && contains(searched.Hashes, next.Hashes) && contains(searched.Recipients, next.Recipients) && contains(searched.ExternalIDs, next.ExternalIDs) {
			return p, nil
		}
		if err := f.search(ctx, s, next.sorted()); err != nil {
			return Person{}, err
		}
		searched = Person{
			Addresses: slices.Concat(searched.Addresses, next.Addresses), Hashes: slices.Concat(searched.Hashes, next.Hashes),
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
				f.add(r)
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
	p := Person{CompanyID: f.company}
	if f.address == "" {
		return p
	}
	p.Addresses, p.Recipients = []string{f.address}, []uuid.UUID{recipient.ID(f.company, "", "", f.address)}
	for t := range f.traces {
		if strings.ToLower(t.address) != f.address || !f.identifies(t) {
			continue
		}
		p.Hashes, p.ExternalIDs, p.Recipients = append(p.Hashes, t.hash), append(p.ExternalIDs, t.externalID), append(p.Recipients, t.recipient)
		if t.hash != "" {
			p.Recipients = append(p.Recipients, f.derived("", t.hash))
		}
		if t.externalID != "" {
			p.Recipients = append(p.Recipients, f.derived(t.externalID, ""))
		}
	}
	return p.sorted()
}

// people returns the people that occur together with the address, each with all identifiers that the
// traces connect: two ids in one row belong to one person.
func (s *sharing) people(traces identities) map[string]Person {
	g, at := groups{}, map[string]bool{}
	for t := range traces {
		if s.identifies(t) {
			g.join(idTexts(s.ids(t))...)
		}
	}
	for t := range traces {
		if s.identifies(t) && strings.ToLower(t.address) == s.address {
			at[g.of(s.ids(t)[0].String())] = true
		}
	}
	people := map[string]Person{}
	for t := range traces {
		if !s.identifies(t) {
			continue
		}
		group := g.of(s.ids(t)[0].String())
		if !at[group] {
			continue
		}
		p := people[group]
		p.Hashes, p.ExternalIDs, p.Recipients = append(p.Hashes, t.hash), append(p.ExternalIDs, t.externalID), append(p.Recipients, s.ids(t)...)
		if t.hash != "" {
			p.Recipients = append(p.Recipients, s.derived("", t.hash))
		}
		people[group] = p
	}
	for group, p := range people {
		people[group] = p.sorted()
	}
	return people
}

func idTexts(ids []uuid.UUID) []string {
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = id.String()
	}
	return texts
}
