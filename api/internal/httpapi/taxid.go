package httpapi

import (
	"fmt"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/keyring"
)

// taxIDs converts CPFs and CNPJs into their two stored forms. hashKey may be nil.
type taxIDs struct {
	ring    keyring.Ring
	hashKey []byte
}

// protect takes a bare number, or a hash given instead of it; both may be missing.
func (t taxIDs) protect(company uuid.UUID, bare string, given *string) (hash string, sealed []byte, err error) {
	switch {
	case bare != "":
		if sealed, err = t.ring.Seal(company, bare); err != nil {
			return "", nil, fmt.Errorf("encrypt cpfCnpj: %w", err)
		}
		return email.HashTaxID(bare, t.hashKey), sealed, nil
	case given != nil:
		return email.KeyTaxIDHash(*given, t.hashKey), nil, nil
	}
	return "", nil, nil
}
