package email

// Error codes of emails that do not reach a provider, and of ends that are not the provider's
// fault. They are stored in email_logs.error_code and returned by the api.
const (
	CodeInvalidPayload    = "INVALID_PAYLOAD"
	CodeOutboxNotFound    = "OUTBOX_NOT_FOUND"
	CodeRecipientNotFound = "RECIPIENT_NOT_FOUND"
	CodeInvalidEmail      = "INVALID_EMAIL"
	CodeInvalidTemplate   = "INVALID_TEMPLATE"
	CodeOutcomeUnknown    = "OUTCOME_UNKNOWN"
	CodeExpired           = "EXPIRED"
	CodeSuppressed        = "SUPPRESSED"
	CodeAttachmentMissing = "ATTACHMENT_MISSING" // a file is gone from the storage, or damaged
	// CodeAttemptAbandoned is the original code of an attempt whose worker died or lost its lease
	// before it recorded a result, and the code of one whose worker recorded too late that it made no call.
	CodeAttemptAbandoned = "ATTEMPT_ABANDONED"
)
