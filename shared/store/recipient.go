package store

import (
	"github.com/google/uuid"

	"email-gateway/shared/store/recipient"
)

// Types of package recipient.
type (
	NewRecipients  = recipient.NewRecipients
	NewRecipient   = recipient.NewRecipient
	Recipient      = recipient.Recipient
	Intake         = recipient.Intake
	KnownRecipient = recipient.Known

	recipients = recipient.Store
)

// Constants of package recipient.
const (
	ErasedAddress = recipient.ErasedAddress
	DeletedKept   = recipient.DeletedKept
)

// Errors of package recipient.
var (
	ErrRefused = recipient.ErrRefused
	ErrLocked  = recipient.ErrLocked
)

// RecipientID derives the id of a recipient that was given without one: a UUIDv5 of the company and the first
// identifier present, so that the same person gets the same id in every request.
func RecipientID(company uuid.UUID, externalID, cpfCNPJHash, address string) uuid.UUID {
	return recipient.ID(company, externalID, cpfCNPJHash, address)
}
