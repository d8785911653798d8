package load

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/google/uuid"
)

// Facts are what one statement says about a person. A field that is empty says nothing.
type Facts struct {
	ExternalID  string
	TaxIDHash   string
	TaxID       bool // the CPF itself too, which the gateway encrypts
	Number      int  // of that CPF
	RazaoSocial string
	Nome        string
	Email       string
}

// The ways in which a tenant makes a statement about a person.
const (
	Imported = "import"  // POST /v1/recipients
	Named    = "email"   // the recipient of an email
	Listed   = "mailing" // a row of a CSV
	Deleted  = "delete"  // DELETE /v1/recipients/{id}
	Erased   = "erase"   // gatewayctl person erase
)

// Statement is what an api accepted about a person. Statements of one Phase are in the order
// of their rows' ids. A deletion or an erasure begins a phase: what was accepted before it was
// answered before it was requested.
type Statement struct {
	Person uuid.UUID
	Phase  int
	How    string
	Facts
	// Row is the outbox row of an email; the others' rows are found by their address.
	Row uuid.UUID
	// Mailing is the one that the row was uploaded with.
	Mailing uuid.UUID
}

// withTaxID adds the n-th CPF, whose hash is the gateway's without a key of its own.
func (f Facts) withTaxID(n int) Facts {
	f.TaxIDHash, f.TaxID, f.Number = hashOf(TaxID(n)), true, n
	return f
}

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// json is the recipient of a request that makes the statement.
func (f Facts) json() map[string]any {
	all := map[string]any{"email": f.Email}
	for name, value := range map[string]string{"externalId": f.ExternalID, "razaoSocial": f.RazaoSocial, "nome": f.Nome} {
		if value != "" {
			all[name] = value
		}
	}
	switch {
	case f.TaxID:
		all["cpfCnpj"] = written(f.Number)
	case f.TaxIDHash != "":
		all["cpfCnpjHash"] = f.TaxIDHash
	}
	return all
}

// all is a statement about every field, different each time.
func all(n int) Facts {
	facts := Facts{RazaoSocial: fmt.Sprintf("Empresa %d Ltda", n), Nome: fmt.Sprintf("Maria %d", n)}
	return facts.withTaxID(personTaxIDs + (n-personSerials)/statementsEach)
}

// single are statements about one field besides the address, or none.
func single(n int) []Facts {
	return []Facts{
		{},
		{Nome: fmt.Sprintf("Ana %d", n)},
		{RazaoSocial: fmt.Sprintf("Comércio %d S.A.", n)},
		{TaxIDHash: hashOf(fmt.Sprintf("outro-%d", n))},
	}
}
