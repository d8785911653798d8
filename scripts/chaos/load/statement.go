package load

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/google/uuid"
)

// Fields are the fields of one statement about a person. An empty field is left out.
type Fields struct {
	ExternalID  string
	TaxIDHash   string
	TaxID       bool // with the CPF itself, which the gateway encrypts
	Number      int  // index of that CPF
	RazaoSocial string
	Nome        string
	Email       string
}

// The kinds of statements about a person.
const (
	Imported = "import"  // POST /v1/recipients
	Named    = "email"   // the recipient of an email
	Listed   = "mailing" // a row of a CSV
	Deleted  = "delete"  // DELETE /v1/recipients/{id}
	Erased   = "erase"   // gatewayctl person erase
)

// Statement is an accepted request with data of a person. Statements of one Phase are ordered by
// their rows' ids. A deletion or an erasure begins a phase: all earlier statements got their
// response before it was requested.
type Statement struct {
	Person uuid.UUID
	Phase  int
	How    string
	Fields
	// Row is the outbox row of an email; the others' rows are found by their address.
	Row uuid.UUID
	// Mailing is the mailing of the row.
	Mailing uuid.UUID
}

// withTaxID adds the n-th CPF, with the hash that the gateway computes without a hash key.
func (f Fields) withTaxID(n int) Fields {
	f.TaxIDHash, f.TaxID, f.Number = hashOf(TaxID(n)), true, n
	return f
}

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// json returns the recipient of a request that makes the statement.
func (f Fields) json() map[string]any {
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

// allFields returns a statement with all fields, which depend on n.
func allFields(n int) Fields {
	fields := Fields{RazaoSocial: fmt.Sprintf("Empresa %d Ltda", n), Nome: fmt.Sprintf("Maria %d", n)}
	return fields.withTaxID(personTaxIDs + (n-personSerials)/statementsEach)
}

// singleField returns statements with one field besides the address, or none.
func singleField(n int) []Fields {
	return []Fields{
		{},
		{Nome: fmt.Sprintf("Ana %d", n)},
		{RazaoSocial: fmt.Sprintf("Comércio %d S.A.", n)},
		{TaxIDHash: hashOf(fmt.Sprintf("outro-%d", n))},
	}
}
