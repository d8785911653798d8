package store

import (
	"email-gateway/shared/store/encryption"
)

// Types of package encryption.
type (
	SealedTable = encryption.SealedTable
	SealedValue = encryption.SealedValue
	SealedPage  = encryption.SealedPage

	encryptedNumbers = encryption.Store
)

// Constants of package encryption.
const (
	SealedRecipients = encryption.SealedRecipients
	SealedEmails     = encryption.SealedEmails
	SealedEntries    = encryption.SealedEntries
)

// SealedTables lists the tables in the order in which a number moves through them, so that a pass over all of them
// also finds a number that moves during the pass.
func SealedTables() []SealedTable { return encryption.SealedTables() }
