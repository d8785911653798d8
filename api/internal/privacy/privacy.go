// Package privacy exports and erases what a company's tables and files hold about one
// person. gatewayctl uses it. It works in small batches, each a commit of its own, and
// an interrupted run is repeated and does what is left: person_erasures remembers whom an
// erasure follows until it is complete.
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

	"email-gateway/api/internal/keyring"
	"email-gateway/shared/email"
	"email-gateway/shared/store"
)

// Bucket is where uploaded files are. *blob.Bucket is one.
type Bucket interface {
	Get(ctx context.Context, key string) (io.ReadCloser, error)
	Delete(ctx context.Context, key string) error
}

// Archive is everything in which people are looked for.
type Archive struct {
	Store  *store.Store
	Bucket Bucket
	// Ring and HashKey are the api's: with others a number is not found.
	Ring    keyring.Ring
	HashKey []byte
	// Progress is told what is being looked at, and how many rows were found so far.
	Progress func(what string, found int)
}

// Query says who is meant: a CPF or CNPJ, bare, or an address.
type Query struct {
	CompanyID uuid.UUID
	TaxID     string
	Address   string
}

// by is what the person is looked for by, without who it is.
func (q Query) by() string {
	if q.TaxID != "" {
		return "cpfCnpj"
	}
	return "address"
}

// subject is who is meant, as rows and as files know him.
type subject struct {
	store.Person
	taxID string
	// spelled are his addresses as a file may spell them: their domains with the letters
	// that IDNA has for them too.
	spelled []string
}

// ErrForeignKeys: the hash key, or the ring, is not the one that the api works with.
var ErrForeignKeys = errors.New("CPF_CNPJ_KEYS and CPF_CNPJ_HASH_KEY are not those that stored numbers were written with")

// find says whom the query means.
func (a *Archive) find(ctx context.Context, q Query) (subject, error) {
	var hashes []string
	if q.TaxID != "" {
		if err := a.checkKeys(ctx); err != nil {
			return subject{}, err
		}
		for _, written := range spellings(q.TaxID) {
			hashes = append(hashes, email.HashTaxID(written, a.HashKey))
		}
	}
	found, err := a.Store.FindPerson(ctx, q.CompanyID, q.Address, hashes...)
	return a.subject(found, q), err
}

// subject is the person with the ways in which addresses and number are written.
func (a *Archive) subject(found store.Person, q Query) subject {
	p := subject{Person: found, taxID: q.TaxID, spelled: slices.Clone(found.Addresses)}
	for _, address := range found.Addresses {
		local, domain, _ := strings.Cut(address, "@")
		if readable, err := idna.Lookup.ToUnicode(domain); err == nil && readable != domain {
			p.spelled = append(p.spelled, local+"@"+strings.ToLower(readable))
		}
	}
	return p
}

// spellings are the ways in which a bare CPF or CNPJ is written. A tenant that hashes a
// number by itself may have hashed any of them; the first one is ours.
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

// checkKeys holds the keys to numbers that are stored both ways: with a wrong one nobody
// would be found, and it would look as if there were nobody. One that fits is enough:
// another may be damaged.
func (a *Archive) checkKeys(ctx context.Context) error {
	samples, err := a.Store.TaxSample(ctx)
	if err != nil || len(samples) == 0 {
		return err
	}
	refused := ErrForeignKeys
	for _, sample := range samples {
		bare, err := a.Ring.Open(sample.CompanyID, sample.Sealed)
		switch {
		case err != nil:
			refused = fmt.Errorf("%w: %w", ErrForeignKeys, err)
		case email.HashTaxID(bare, a.HashKey) == sample.Hash:
			return nil
		}
	}
	return refused
}

// each calls do with the rows of a table that name the person, a page at a time.
func (a *Archive) each(ctx context.Context, p subject, table store.PersonTable, scan store.PersonScan, do func([]store.PersonRow) error) error {
	return pages(scan, func(scan store.PersonScan) (store.PersonPage, error) {
		return a.Store.PersonRows(ctx, p.Person, table, scan)
	}, do)
}

func pages(scan store.PersonScan, next func(store.PersonScan) (store.PersonPage, error), do func([]store.PersonRow) error) error {
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

func (a *Archive) tell(what string, found int) {
	if a.Progress != nil {
		a.Progress(what, found)
	}
}
