// Package taxid protects the CPFs and CNPJs of requests before they are stored.
package taxid

import (
	"fmt"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/keyring"
)

// Protector converts CPFs and CNPJs into their two stored forms. hashKey may be nil.
type Protector struct {
	Ring    keyring.Ring
	HashKey []byte
}

// Protect takes a bare number, or a hash given instead of it; both may be missing.
func (t Protector) Protect(company uuid.UUID, bare string, given *string) (hash string, encrypted []byte, err error) {
	switch {
	case bare != "":
		if encrypted, err = t.Ring.Seal(company, bare); err != nil {
			return "", nil, fmt.Errorf("encrypt cpfCnpj: %w", err)
		}
		return email.HashTaxID(bare, t.HashKey), encrypted, nil
	case given != nil:
		return email.KeyTaxIDHash(*given, t.HashKey), nil, nil
	}
	return "", nil, nil
}
