package email

// Codes of what can be wrong with an email before it reaches a provider, and of
// the ends that are no provider's fault. They stand in email_logs.error_code and
// in the api's answers.
const (
	CodeInvalidPayload    = "INVALID_PAYLOAD"
	CodeOutboxNotFound    = "OUTBOX_NOT_FOUND"
	CodeRecipientNotFound = "RECIPIENT_NOT_FOUND"
	CodeInvalidEmail      = "INVALID_EMAIL"
	CodeInvalidTemplate   = "INVALID_TEMPLATE"
	CodeOutcomeUnknown    = "OUTCOME_UNKNOWN"
	CodeExpired           = "EXPIRED"
	CodeSuppressed        = "SUPPRESSED"
	// CodeAttemptAbandoned is the original code of an attempt whose worker died, or lost its
	// lease, before it recorded an answer.
	CodeAttemptAbandoned = "ATTEMPT_ABANDONED"
)

// Validation names one of the four checks an email passes before it is sent.
type Validation string

const (
	ValidationIntegrity Validation = "INTEGRITY"
	ValidationOutbox    Validation = "OUTBOX"
	ValidationRecipient Validation = "RECIPIENT"
	ValidationTemplate  Validation = "TEMPLATE"
)
