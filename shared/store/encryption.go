package store

import (
	"email-gateway/shared/store/encryption"
)

// Types of package encryption.
type (
	EncryptedTable = encryption.EncryptedTable
	EncryptedValue = encryption.EncryptedValue

	encryptedNumbers = encryption.Store
)

// EncryptedEmails is encryption.EncryptedEmails.
const EncryptedEmails = encryption.EncryptedEmails

// EncryptedTables lists the tables in the order in which a number moves through them, so that one pass over all of them
// also finds a number that moves during the pass.
func EncryptedTables() []EncryptedTable { return encryption.EncryptedTables() }
