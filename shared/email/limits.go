package email

// Limits of an email, defined by the contract.
const (
	MaxSubject  = 150       // characters, not bytes
	MaxHTML     = 512 << 10 // bytes of UTF-8
	MaxCopies   = 5         // each of cc and bcc
	MaxTags     = 5
	maxHeaders  = 10
	MaxFieldLen = 200 // characters of externalId, nome, razaoSocial
)
