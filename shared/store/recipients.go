package store

import (
	"cmp"
	"context"
	"fmt"

	"github.com/google/uuid"

	"email-gateway/shared/email"
)

// Recipient is a person a company writes to.
type Recipient struct {
	ID          uuid.UUID
	ExternalID  string
	CPFCNPJHash string
	RazaoSocial string
	Nome        string
	Email       string
}

// RecipientID derives the id of a recipient that was given without one: UUIDv5
// over the company and the first identifier present, so that the same person has
// the same id in every request.
func RecipientID(company uuid.UUID, externalID, cpfCNPJHash, address string) uuid.UUID {
	name := cmp.Or(
		prefixed("externalId:", externalID),
		prefixed("cpfCnpjHash:", cpfCNPJHash),
		prefixed("email:", email.NormalAddress(address)),
	)
	return uuid.NewSHA1(company, []byte(name))
}

func prefixed(prefix, value string) string {
	if value == "" {
		return ""
	}
	return prefix + value
}

// recipientMatchesSQL reads one row by primary key and locks nothing.
const recipientMatchesSQL = `
SELECT EXISTS (SELECT FROM recipients WHERE id = $1 AND company_id = $2 AND deleted_at IS NULL
    AND split_part(email, '@', 1) || '@' || lower(split_part(email, '@', 2)) = $3)`

// RecipientMatches says whether the company has this recipient, undeleted, at this
// address.
func (s *Store) RecipientMatches(ctx context.Context, company, recipient uuid.UUID, address string) (bool, error) {
	var found bool
	err := s.db.GetContext(ctx, &found, recipientMatchesSQL, recipient, company, email.NormalAddress(address))
	if err != nil {
		return false, fmt.Errorf("look up recipient: %w", translate(err))
	}
	return found, nil
}
