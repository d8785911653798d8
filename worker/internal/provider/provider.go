// Package provider defines the contract between the pipeline and an email provider. The pipeline
// depends only on Sender, Message and Failure; an adapter (package ses) maps its provider's answers
// to them, and every adapter must pass the tests in package providertest.
//
// The pipeline calls a Sender once per attempt. A Sender must not retry: a retry that is not
// recorded sends the email twice.
package provider

import (
	"context"
	"fmt"
)

// Sender sends a message through a provider.
//
// Send returns a Receipt if the provider accepted the message. Every other outcome is a *Failure
// whose Outcome says what may be done next; Send returns no other error type. The context's
// deadline bounds the whole call.
type Sender interface {
	Send(ctx context.Context, m Message) (Receipt, error)
}

// Message is one validated email. Addresses are bare except From, which may have a display name.
type Message struct {
	From    string
	To      string
	CC      []string
	BCC     []string
	ReplyTo string
	Subject string
	HTML    string
	Text    string
	Headers map[string]string
	// Attachments are sent in base64, so that they arrive unchanged.
	Attachments []Attachment

	// The ids are sent to the provider as tags, so that its feedback can be matched to this
	// attempt even if its answer was lost. A copy of the database differs from its original in InstallationID only.
	OutboxID       string
	AttemptID      string
	CompanyID      string
	InstallationID string
}

// Attachment is a file of a message.
type Attachment struct {
	Filename    string
	ContentType string
	ContentID   string // without < and >; "" = none
	Inline      bool   // shown in the body
	Content     []byte
}

// Receipt is the provider's confirmation that it accepted the message.
type Receipt struct {
	// MessageID is the provider's id. It may not be unique: some emulators repeat theirs.
	MessageID string
}

// Outcome classifies a failed call.
type Outcome string

const (
	// Failed: refused permanently. A retry would be refused too.
	Failed Outcome = "FAILED"
	// Throttled: refused for now because of a quota. It counts as a throttle, not as one of the
	// five attempts, so a quota alone never fails an email.
	Throttled Outcome = "THROTTLED"
	// Retry: the provider certainly did not accept it; a retry may succeed.
	Retry Outcome = "RETRY"
	// Unknown: the request was sent without a usable answer. It may have been accepted.
	Unknown Outcome = "UNKNOWN"
	// Unreadable: the provider answered 2xx without a valid receipt. It was most likely accepted,
	// so it is never retried automatically.
	Unreadable Outcome = "UNREADABLE"
	// Park: the email is fine, but the account, the credentials or the endpoint is not. The attempt
	// does not count, unless the failure is Ambiguous and the account is known to work: then it
	// counts like that of Retry.
	Park Outcome = "PARK"
	// Unspent: the call ended on our side before the whole email was sent. The attempt does not count.
	Unspent Outcome = "UNSPENT"
)

// Category groups codes for metrics and for the FAILED event's metadata.
type Category string

const (
	PermanentError     Category = "PERMANENT_ERROR"
	ConfigurationError Category = "CONFIGURATION_ERROR"
	QuotaError         Category = "QUOTA_ERROR"
	TransientError     Category = "TRANSIENT_ERROR"
	TimeoutError       Category = "TIMEOUT_ERROR"
	ValidationError    Category = "VALIDATION_ERROR"
)

// RetriedCategories are the categories of failures after which an email may be retried.
func RetriedCategories() []string {
	return []string{string(QuotaError), string(TransientError), string(TimeoutError)}
}

// Failure is the only error a Sender returns.
type Failure struct {
	Outcome  Outcome
	Code     string   // stable, e.g. SES_THROTTLING, NETWORK_ERROR
	Category Category // of Code
	// OriginalCode is the provider's error code, "" if it had none.
	OriginalCode string
	// Reason is the provider's text. It may contain addresses: mask it before logging.
	Reason string
	// AccountWide means that the next email would get the same answer (a paused account, an
	// exhausted daily quota), which opens the circuit breaker. Park implies it and does not set it.
	AccountWide bool
	// Ambiguous, of a Park, means that the answer does not say whether it concerns the account or
	// only the email or its sender.
	Ambiguous bool
	// Outage means that the provider does not work: it is unavailable, answers 5xx, cannot be
	// reached, breaks the connection or does not answer in time. A single such failure may be
	// caused by the email; failures of several emails in a row open the circuit breaker.
	Outage bool
	// Withheld means that the call was not made, because of an earlier response.
	Withheld bool
	// Incomplete, of an Outage, means that the call ended while the email was being sent to the provider. The cause may be its
	// size, on a slow or filtered way to the provider, so such failures do not show that the provider does not work.
	Incomplete bool
	Err        error // the cause, for errors.Is and errors.As
}

func (f *Failure) Error() string {
	return fmt.Sprintf("%s (%s): %s", f.Code, f.Outcome, f.Reason)
}

func (f *Failure) Unwrap() error { return f.Err }
