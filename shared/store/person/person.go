package person

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"email-gateway/shared/store"
	"email-gateway/shared/store/internal/pg"
)

// Person is what the rows of one company may know somebody by.
type Person struct {
	CompanyID  uuid.UUID   `json:"companyId"`
	Addresses  []string    `json:"addresses"` // in lower case
	Hashes     []string    `json:"hashes"`    // of the CPF or CNPJ, as they are stored
	Recipients []uuid.UUID `json:"recipients"`
	// ExternalIDs are the company's own, of the person.
	ExternalIDs []string `json:"externalIds"`
	// Shared are addresses of the person that other people of the company have too. They are
	// none of Addresses: a row that names nothing else of the person is left to the others.
	Shared []string `json:"shared"`
	// Numbers is how many people are found. More than one: they share an address.
	Numbers int `json:"-"`
}

// personBatch is how many rows one statement of a search looks at: 20 ms, of logs with their
// timelines some 50.
const personBatch = 5000

// maxSearches bounds how often all tables are searched for what the last search has found.
// Each further search needs a row that names the person by an id, and another one by a new
// id and a new address.
const maxSearches = 32

// ErrNotFollowed: after maxSearches searches the person's rows still led to others.
var ErrNotFollowed = errors.New("the person's rows lead to ever more ids and addresses")

// Find finds the identifiers of a person in the company's rows, given an address, or the stored hashes
// of a CPF or CNPJ (of each form in which it may have been written); the other is left out.
// From there it follows the ids and addresses that occur in the same rows of all tables,
// former ones too. An address that also names another person somewhere is Shared,
// and is not followed to other rows. ErrNotFollowed is returned instead of an incomplete result.
//
// For an address that several people share, all of its current recipients are returned, and no
// further rows are followed.
func (s *Store) Find(ctx context.Context, company uuid.UUID, address string, hashes ...string) (Person, error) {
	hashes = slices.DeleteFunc(slices.Clone(hashes), func(h string) bool { return h == "" })
	f := finder{company: company, address: strings.ToLower(address), hashes: hashes, traces: map[trace]bool{}}
	if address == "" {
		for _, hash := range hashes {
			f.recipients = append(f.recipients, store.RecipientID(company, "", hash, ""))
		}
		return f.follow(ctx, s)
	}
	at := Person{CompanyID: company, Addresses: []string{f.address}, Recipients: []uuid.UUID{store.RecipientID(company, "", "", address)}}
	if err := f.search(ctx, s, at); err != nil {
		return Person{}, err
	}
	if err := f.search(ctx, s, f.whoAt()); err != nil { // the rows that connect them, in any table
		return Person{}, err
	}
	people := f.people()
	switch len(people) {
	case 0:
		return f.follow(ctx, s)
	case 1:
		f.hashes, f.recipients, f.externalIDs = people[0].Hashes, people[0].Recipients, people[0].ExternalIDs
		return f.follow(ctx, s)
	}
	at.Numbers = len(people)
	for t := range f.traces {
		if t.table == Recipients && strings.EqualFold(t.address, address) {
			at.Recipients, at.ExternalIDs = append(at.Recipients, t.recipient), append(at.ExternalIDs, t.externalID)
		}
	}
	return at.sorted(), nil
}

// sorted has each list sorted, without repetitions and "".
func (p Person) sorted() Person {
	for _, list := range []*[]string{&p.Addresses, &p.Hashes, &p.ExternalIDs, &p.Shared} {
		slices.Sort(*list)
		*list = slices.DeleteFunc(slices.Compact(*list), func(text string) bool { return text == "" })
	}
	slices.SortFunc(p.Recipients, func(a, b uuid.UUID) int { return strings.Compare(a.String(), b.String()) })
	p.Recipients = slices.Compact(p.Recipients)
	return p
}

// taxSampleSQL reads along recipients_pkey up to the third row with both; it locks nothing.
const taxSampleSQL = `
SELECT cpf_cnpj_enc, cpf_cnpj_hash, company_id FROM recipients
WHERE id > $1 AND cpf_cnpj_enc IS NOT NULL AND cpf_cnpj_hash IS NOT NULL ORDER BY id LIMIT 3`

// TaxSample is a number as it is stored, both ways.
type TaxSample struct {
	CompanyID uuid.UUID `db:"company_id"`
	Encrypted []byte    `db:"cpf_cnpj_enc"`
	Hash      string    `db:"cpf_cnpj_hash"`
}

// TaxSample returns some numbers that are stored both encrypted and as a hash, by which
// one can tell whether one's keys are the api's. Several, since one may be damaged.
func (s *Store) TaxSample(ctx context.Context) ([]TaxSample, error) {
	var found []TaxSample
	if err := s.db.SelectContext(ctx, &found, taxSampleSQL, uuid.Nil); err != nil {
		return nil, fmt.Errorf("read encrypted numbers: %w", pg.Translate(err))
	}
	return found, nil
}
