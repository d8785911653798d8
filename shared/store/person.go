package store

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/lib/pq"
)

// ErasedAddress stands where a person's address did. No mail can be sent to .invalid.
const ErasedAddress = "erased@erased.invalid"

// Person is what the rows of one company may know somebody by.
type Person struct {
	CompanyID  uuid.UUID
	Addresses  []string    // in lower case
	Hashes     []string    // of his CPF or CNPJ, as they are stored
	Recipients []uuid.UUID // his ids
	// ExternalIDs are the company's own, of his recipients.
	ExternalIDs []string
	// Shared are addresses of his that other people of the company have too. They are
	// none of Addresses: a row that names nothing else of him is left to the others.
	Shared []string
	// Numbers is how many CPFs and CNPJs the recipients found have. More than one: they are
	// several people, who share an address.
	Numbers int
}

// findPersonSQL goes along recipients_pkey, a batch at a time: whose recipients are looked
// for is asked so rarely that it has no index. It locks nothing. A recipient whose number is
// past its age (eraseRecipientHashesSQL) is found by the id that was derived from it.
const findPersonSQL = `
WITH seen AS MATERIALIZED (
    SELECT id, company_id, external_id, cpf_cnpj_hash, email FROM recipients WHERE id > $1 ORDER BY id LIMIT $2
)
SELECT t.seen, t.last, s.id, s.external_id, s.cpf_cnpj_hash, lower(s.email) AS email
FROM (SELECT count(*) AS seen, (SELECT id FROM seen ORDER BY id DESC LIMIT 1) AS last FROM seen) t
LEFT JOIN seen s ON s.company_id = $3 AND (lower(s.email) = ANY ($4::text[]) OR s.cpf_cnpj_hash = ANY ($5::text[])
    OR s.cpf_cnpj_hash IS NULL AND s.id = ANY ($6::uuid[]))`

// personBatch is how many rows one statement of a search looks at: 20 ms, of logs with their
// timelines some 50.
const personBatch = 5000

// personRecipient is a recipient that a search has found.
type personRecipient struct {
	Seen       int           `db:"seen"`
	Last       uuid.NullUUID `db:"last"`
	ID         uuid.NullUUID `db:"id"`
	ExternalID *string       `db:"external_id"`
	Hash       *string       `db:"cpf_cnpj_hash"`
	Email      *string       `db:"email"`
}

// FindPerson says what the company's rows know somebody by: an address, or the stored hash
// of a CPF or CNPJ; the other is "". By an address, it is whoever is written to there. By a
// number, his addresses count too, as long as nobody else's recipients have them.
func (s *Store) FindPerson(ctx context.Context, company uuid.UUID, address, hash string) (Person, error) {
	p := Person{CompanyID: company}
	if address != "" {
		p.Addresses = []string{strings.ToLower(address)}
		p.Recipients = []uuid.UUID{RecipientID(company, "", "", address)}
	}
	if hash != "" {
		p.Hashes = []string{hash}
		p.Recipients = []uuid.UUID{RecipientID(company, "", hash, "")}
	}
	found, err := s.recipientsOf(ctx, p)
	if err != nil {
		return Person{}, err
	}
	var addresses []string
	numbers := map[string]bool{}
	for _, r := range found {
		if r.Hash != nil {
			numbers[*r.Hash] = true
		}
		p.Recipients = append(p.Recipients, r.ID.UUID)
		if r.ExternalID != nil {
			p.ExternalIDs = append(p.ExternalIDs, *r.ExternalID)
		}
		if r.Email != nil && *r.Email != ErasedAddress {
			addresses = append(addresses, *r.Email)
		}
	}
	p.Numbers = len(numbers)
	slices.SortFunc(p.Recipients, func(a, b uuid.UUID) int { return strings.Compare(a.String(), b.String()) })
	p.Recipients = slices.Compact(p.Recipients)
	if hash == "" || len(addresses) == 0 {
		return p, nil
	}
	neighbours, err := s.recipientsOf(ctx, Person{CompanyID: company, Addresses: addresses})
	if err != nil {
		return Person{}, err
	}
	for _, n := range neighbours {
		if !slices.Contains(p.Recipients, n.ID.UUID) {
			p.Shared = append(p.Shared, *n.Email)
		}
	}
	slices.Sort(p.Shared)
	p.Shared = slices.Compact(p.Shared)
	slices.Sort(addresses)
	p.Addresses = slices.DeleteFunc(slices.Compact(addresses), func(a string) bool { return slices.Contains(p.Shared, a) })
	return p, nil
}

// recipientsOf goes through the recipients for a person's addresses, hashes and ids.
func (s *Store) recipientsOf(ctx context.Context, p Person) ([]personRecipient, error) {
	var all []personRecipient
	for after := uuid.Nil; ; {
		var page []personRecipient
		err := s.db.SelectContext(ctx, &page, findPersonSQL, after, personBatch, p.CompanyID,
			pq.StringArray(p.Addresses), pq.StringArray(p.Hashes), p.recipientTexts())
		if err != nil {
			return nil, fmt.Errorf("find person: %w", translate(err))
		}
		for _, r := range page {
			if r.ID.Valid {
				all = append(all, r)
			}
		}
		if page[0].Seen < personBatch {
			return all, nil
		}
		after = page[0].Last.UUID
	}
}

// taxSampleSQL reads along recipients_pkey up to the third row with both; it locks nothing.
const taxSampleSQL = `
SELECT cpf_cnpj_enc, cpf_cnpj_hash, company_id FROM recipients
WHERE id > $1 AND cpf_cnpj_enc IS NOT NULL AND cpf_cnpj_hash IS NOT NULL ORDER BY id LIMIT 3`

// TaxSample is a number as it is stored, both ways.
type TaxSample struct {
	CompanyID uuid.UUID `db:"company_id"`
	Sealed    []byte    `db:"cpf_cnpj_enc"`
	Hash      string    `db:"cpf_cnpj_hash"`
}

// TaxSample returns some numbers that are stored both encrypted and as a hash, by which
// one can tell whether one's keys are the api's. Several, since one may be damaged.
func (s *Store) TaxSample(ctx context.Context) ([]TaxSample, error) {
	var found []TaxSample
	if err := s.db.SelectContext(ctx, &found, taxSampleSQL, uuid.Nil); err != nil {
		return nil, fmt.Errorf("read sealed numbers: %w", translate(err))
	}
	return found, nil
}
