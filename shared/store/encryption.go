package store

import (
	"email-gateway/shared/store/encryption"
)

// Types of package encryption.
type (
	EncryptedTable = encryption.EncryptedTable
	EncryptedValue = encryption.EncryptedValue
	EncryptedPage  = encryption.EncryptedPage

	encryptedNumbers = encryption.Store
)

// Constants of package encryption.
const (
	EncryptedRecipients = encryption.EncryptedRecipients
	EncryptedEmails     = encryption.EncryptedEmails
	EncryptedEntries    = encryption.EncryptedEntries
)

// EncryptedTables lists the tables in the order in which a number moves through them, so that one pass over all of them
// also finds a number that moves during the pass.
func EncryptedTables() []EncryptedTable { return encryption.EncryptedTables() }
