package httpapi

import (
	"fmt"

	"github.com/google/uuid"

	"email-gateway/api/internal/keyring"
	"email-gateway/shared/email"
)

// taxIDs turns CPFs and CNPJs into the two forms in which they are stored. hashKey may
// be nil.
type taxIDs struct {
	ring    keyring.Ring
	hashKey []byte
}

// protect takes a bare number, or the hash that was given instead of one; both may be
// missing.
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
