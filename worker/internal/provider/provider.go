// Package provider is the seam between the pipeline and whoever carries mail to
// its reader. The pipeline knows only Sender, Message and Failure; an adapter
// (package ses) turns its provider's answers into them, and every adapter passes
// the suite in package providertest.
//
// A provider is called once per attempt. It never retries by itself: who retries
// without writing it down sends twice.
package provider

import (
	"context"
	"fmt"
)

// Sender hands one message to a provider.
//
// Send returns a Receipt when the provider said it accepted the message. Every
// other outcome is a *Failure whose Verdict tells what may be done next; no other
// error type comes out of Send. The context's deadline bounds the whole call.
type Sender interface {
	Send(ctx context.Context, m Message) (Receipt, error)
}

// Message is one email, checked and complete. Addresses are bare except From,
// which may carry a display name.
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

	// The three ids travel to the provider as tags, so that its feedback can be
	// led back to this very attempt even when its answer never reached us.
	OutboxID  string
	AttemptID string
	CompanyID string
}

// Receipt proves that the provider took the message.
type Receipt struct {
	// MessageID is the provider's id. It is not assumed to be unique: emulators
	// are known to repeat theirs.
	MessageID string
}

// Verdict is what a failed call means for the email.
type Verdict string

const (
	// Failed: refused for good. Trying again would be refused again.
	Failed Verdict = "FAILED"
	// Throttled: refused for now because of a quota. Costs a throttle, not one of
	// the five tries, so a quota alone never ends an email.
	Throttled Verdict = "THROTTLED"
	// Retry: the provider certainly did not take it, and may the next time.
	Retry Verdict = "RETRY"
	// Unknown: the request left, no usable answer came. It may have been taken.
	Unknown Verdict = "UNKNOWN"
	// Unreadable: the provider answered 2xx but not with a receipt. It was most
	// likely taken, so it is never sent again by itself.
	Unreadable Verdict = "UNREADABLE"
	// Park: nothing is wrong with the email, everything is wrong with the account,
	// the credentials or the endpoint. Gives the try back.
	Park Verdict = "PARK"
	// Unspent: our side gave up before a connection was there. Gives the try back.
	Unspent Verdict = "UNSPENT"
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

// Failure is the only error a Sender returns.
type Failure struct {
	Verdict  Verdict
	Code     string   // ours, stable: SES_THROTTLING, NETWORK_ERROR, …
	Category Category // of Code
	// OriginalCode is the provider's own name for it, "" when it had none.
	OriginalCode string
	// Reason is the provider's text as it came: it may quote addresses, so mask it
	// before it reaches a log.
	Reason string
	// AccountWide says that the next email will meet the same answer (a paused
	// account, a spent daily quota): a brake for all workers, not for one email. Park
	// means that by itself and does not set it.
	AccountWide bool
	// Outage says that the provider does not work at the moment: it is unavailable, fails
	// with a 5xx, or there is no connection, a cut one or no answer in time. One such
	// failure may be the email's own; several emails in a row open the circuit breaker.
	Outage bool
	Err    error // the cause, for errors.Is and errors.As
}

func (f *Failure) Error() string {
	return fmt.Sprintf("%s (%s): %s", f.Code, f.Verdict, f.Reason)
}

func (f *Failure) Unwrap() error { return f.Err }
