package email

// Validation is one of the four checks before an email is sent.
type Validation string

const (
	ValidationIntegrity Validation = "INTEGRITY"
	ValidationOutbox    Validation = "OUTBOX"
	ValidationRecipient Validation = "RECIPIENT"
	ValidationTemplate  Validation = "TEMPLATE"
)
