// Package privacy exports and erases what a company's tables and files contain about a person.
// gatewayctl uses it. It commits in small batches, and an interrupted run can be repeated and
// continues: person_erasures stores the identifiers of an erasure until it is complete.
package privacy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/google/uuid"
	"golang.org/x/net/idna"

	"email-gateway/shared/email"
	"email-gateway/shared/keyring"
	"email-gateway/shared/store"
	"email-gateway/shared/store/person"
)

// Bucket stores uploaded files; see *blob.Bucket.
type Bucket interface {
	Get(ctx context.Context, key string) (io.ReadCloser, error)
	Delete(ctx context.Context, key string) error
}

// Archive is where people are searched for.
type Archive struct {
	Store  *store.Store
	People *person.Store
	Bucket Bucket
	// Ring and HashKey must be the api's; with others, numbers are not found.
	Ring    keyring.Ring
	HashKey []byte
	// Progress is called with what is being scanned and how many rows were found so far.
	Progress func(what string, found int)
}

// Query identifies the person: by a bare CPF or CNPJ, or by an address.
type Query struct {
	CompanyID uuid.UUID
	TaxID     string
	Address   string
}

// by returns the kind of the identifier, without its value.
func (q Query) by() string {
	if q.TaxID != "" {
		return "cpfCnpj"
	}
	return "address"
}

// subject is the person with the spellings to search for.
type subject struct {
	person.Person
	taxID string
	// spelled are the addresses as a file may spell them, including the Unicode forms of their
	// domains.
	spelled []string
}

// ErrInterrupted: the erasure has begun, and something may have been erased.
var ErrInterrupted = errors.New("the erasure was interrupted")

// ErrForeignKeys: the hash key or the ring is not the api's.
var ErrForeignKeys = errors.New("CPF_CNPJ_KEYS and CPF_CNPJ_HASH_KEY are not those that stored numbers were written with")

// find resolves the query to a person.
func (a *Archive) find(ctx context.Context, q Query) (subject, error) {
	var hashes []string
	if q.TaxID != "" {
		if err := a.checkKeys(ctx); err != nil {
			return subject{}, err
		}
		for _, written := range spellings(q.TaxID) {
			hashes = append(hashes, email.HashTaxID(written, a.HashKey), email.HashTaxID(written, nil)) // programs may store the plain one
		}
	}
	found, err := a.People.Find(ctx, q.CompanyID, a.HashKey, q.Address, hashes...)
	return a.subject(found, q), err
}

// subject adds the spellings of the addresses and the number to the person.
func (a *Archive) subject(found person.Person, q Query) subject {
	p := subject{Person: found, taxID: q.TaxID, spelled: slices.Clone(found.Addresses)}
	for _, address := range found.Addresses {
		local, domain, _ := strings.Cut(address, "@")
		if readable, err := idna.Lookup.ToUnicode(domain); err == nil && readable != domain {
			p.spelled = append(p.spelled, local+"@"+strings.ToLower(readable))
		}
	}
	return p
}

// spellings returns the ways in which a bare CPF or CNPJ is written. A tenant that hashes numbers
// itself may have hashed any of them; the first one is ours.
func spellings(taxID string) []string {
	punctuated := taxID
	switch len(taxID) {
	case 11:
		punctuated = taxID[:3] + "." + taxID[3:6] + "." + taxID[6:9] + "-" + taxID[9:]
	case 14:
		punctuated = taxID[:2] + "." + taxID[2:5] + "." + taxID[5:8] + "/" + taxID[8:12] + "-" + taxID[12:]
	}
	all := []string{taxID, punctuated, strings.ToLower(taxID), strings.ToLower(punctuated), strings.TrimLeft(taxID, "0")}
	slices.Sort(all[1:])
	return slices.Compact(all)
}

// checkKeys tests the keys with stored numbers that have both a hash and an encrypted value: with
// wrong keys nothing would be found, and the result would look like no data. One match is enough,
// since other values may be damaged.
func (a *Archive) checkKeys(ctx context.Context) error {
	samples, err := a.People.TaxSample(ctx)
	if err != nil || len(samples) == 0 {
		return err
	}
	refused := ErrForeignKeys
	for _, sample := range samples {
		bare, err := a.Ring.Open(sample.CompanyID, sample.Encrypted)
		switch {
		case err != nil:
			refused = fmt.Errorf("%w: %w", ErrForeignKeys, err)
		case email.HashTaxID(bare, a.HashKey) == sample.Hash:
			return nil
		}
	}
	return refused
}

// each calls do with the rows of a table that name the person, page by page.
func (a *Archive) each(ctx context.Context, p subject, table person.Table, scan person.Scan, do func([]person.Row) error) error {
	return pages(scan, func(scan person.Scan) (person.Page, error) {
		return a.People.Rows(ctx, p.Person, table, scan)
	}, do)
}

func pages(scan person.Scan, next func(person.Scan) (person.Page, error), do func([]person.Row) error) error {
	for {
		page, err := next(scan)
		if err != nil {
			return err
		}
		if len(page.Rows) > 0 {
			if err := do(page.Rows); err != nil {
				return err
			}
		}
		if !page.More {
			return nil
		}
		scan.After = page.Last
	}
}

func (a *Archive) report(what string, found int) {
	if a.Progress != nil {
		a.Progress(what, found)
	}
}
