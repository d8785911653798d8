package person

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"email-gateway/shared/store/internal/pg"
)

// Person holds the identifiers by which rows of one company may name a person.
type Person struct {
	CompanyID  uuid.UUID   `json:"companyId"`
	Addresses  []string    `json:"addresses"` // in lower case
	Hashes     []string    `json:"hashes"`    // of the CPF or CNPJ, as they are stored
	Recipients []uuid.UUID `json:"recipients"`
	// ExternalIDs are the ids that the company itself uses for the person.
	ExternalIDs []string `json:"externalIds"`
	// Shared are addresses of the person that other people of the company have too. They are not
	// in Addresses: a row with no other identifier of the person belongs to the other people.
	Shared []string `json:"shared"`
	// SharedIDs are external ids in the person's rows that several people share. They are not in
	// ExternalIDs: a row that has one of them and nothing else of the person belongs to the other people.
	SharedIDs []string `json:"sharedIds"`
	// SharedNumbers are the same for hashes of a CPF or CNPJ, in a search by address: a CNPJ has many contacts.
	SharedNumbers []string `json:"sharedNumbers"`
	// SharedRecipients are the recipients of SharedIDs and SharedNumbers, into which the data of several people is merged.
	SharedRecipients []uuid.UUID `json:"sharedRecipients"`
	// Numbers is how many people were found. More than one: they share the address.
	Numbers int `json:"-"`
}

// personBatch is how many rows one statement of a search reads: about 20 ms, or 50 ms for logs with
// their timelines.
const personBatch = 5000

// maxSearches bounds how often all tables are searched for the identifiers that the previous search
// found. Each further search needs a row that names the person by an id, and another one by a new
// id and a new address.
const maxSearches = 32

// ErrNotFollowed means that after maxSearches searches the person's rows still led to new identifiers.
var ErrNotFollowed = errors.New("the person's rows still lead to new ids and addresses")

// Find finds the identifiers of a person in the company's rows, given an address, or the stored hashes of a CPF or CNPJ
// (of each form in which it may have been written, keyed and plain); the other is left out. From there it follows the
// ids and addresses that occur in the same rows of all tables, including former ones. An address that also names
// another person is added to Shared, an external id of several people to SharedIDs, and in a search by address their
// number to SharedNumbers (see the package's comment); none is followed to other rows. Find returns ErrNotFollowed
// instead of an incomplete result.
//
// hashKey is that of the stored hashes: by it Find recognizes a keyed and a plain hash of one number.
//
// For an address that several people share, all of its current recipients are returned, and no
// further rows are followed.
func (s *Store) Find(ctx context.Context, company uuid.UUID, hashKey []byte, address string, hashes ...string) (Person, error) {
	hashes = slices.DeleteFunc(slices.Clone(hashes), func(h string) bool { return h == "" })
	f := finder{company: company, hashKey: hashKey, address: strings.ToLower(address), traces: map[trace]*use{}}
	if address == "" {
		f.given = hashes
	}
	return f.follow(ctx, s)
}

// sorted returns p with each list sorted, without duplicates and empty strings.
func (p Person) sorted() Person {
	for _, list := range []*[]string{&p.Addresses, &p.Hashes, &p.ExternalIDs, &p.Shared, &p.SharedIDs, &p.SharedNumbers} {
		slices.Sort(*list)
		*list = slices.DeleteFunc(slices.Compact(*list), func(text string) bool { return text == "" })
	}
	for _, list := range []*[]uuid.UUID{&p.Recipients, &p.SharedRecipients} {
		*list = slices.DeleteFunc(*list, func(id uuid.UUID) bool { return id == uuid.Nil })
		slices.SortFunc(*list, compareIDs)
		*list = slices.Compact(*list)
	}
	return p
}

// taxSampleSQL scans recipients_pkey up to the third row with both; it locks nothing.
const taxSampleSQL = `
SELECT cpf_cnpj_enc, cpf_cnpj_hash, company_id FROM recipients
WHERE id > $1 AND cpf_cnpj_enc IS NOT NULL AND cpf_cnpj_hash IS NOT NULL ORDER BY id LIMIT 3`

// TaxSample is a CPF or CNPJ in both of its stored forms.
type TaxSample struct {
	CompanyID uuid.UUID `db:"company_id"`
	Encrypted []byte    `db:"cpf_cnpj_enc"`
	Hash      string    `db:"cpf_cnpj_hash"`
}

// TaxSample returns up to three numbers that are stored both encrypted and as a hash. With them a
// program can check that its keys are those of the api. One of them may be undecryptable.
func (s *Store) TaxSample(ctx context.Context) ([]TaxSample, error) {
	var found []TaxSample
	if err := s.db.SelectContext(ctx, &found, taxSampleSQL, uuid.Nil); err != nil {
		return nil, fmt.Errorf("read encrypted numbers: %w", pg.Translate(err))
	}
	return found, nil
}
