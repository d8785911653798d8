// Package email has the types of the gateway and the rules that need no database: what an email is,
// its states, when it is retried, how it is masked in a log. It imports only the standard library,
// so that the api, the worker and the store can all use it.
package email

import "slices"

// Status is the state of an email: the column email_outbox.status, the api's "status" and
// email_logs.status.
type Status string

const (
	// Pending: the dispatcher must act. Set by the api on acceptance, and by the worker when it
	// releases an email without a provider call.
	Pending Status = "PENDING"
	// Enqueued: the dispatcher has enqueued a task for it.
	Enqueued Status = "ENQUEUED"
	// Processing: a worker has claimed it with a lease; it may be calling the provider.
	Processing Status = "PROCESSING"
	// RetryScheduled: a retry is scheduled; it waits on the queue or in the outbox until it is due.
	RetryScheduled Status = "RETRY_SCHEDULED"
	// OutcomeUnknown: the request was sent and no usable answer was received.
	OutcomeUnknown Status = "OUTCOME_UNKNOWN"

	// Sent: the provider accepted it.
	Sent Status = "SENT"
	// Failed: refused permanently, invalid, or out of attempts. It has a dead letter.
	Failed Status = "FAILED"
	// Expired: its deadline passed before the provider accepted it.
	Expired Status = "EXPIRED"
	// Cancelled: its tenant cancelled it in time.
	Cancelled Status = "CANCELLED"
	// Suppressed: its address is suppressed.
	Suppressed Status = "SUPPRESSED"
)

// Statuses lists every status of an email.
func Statuses() []Status {
	return []Status{
		Pending, Enqueued, Processing, RetryScheduled, OutcomeUnknown,
		Sent, Failed, Expired, Cancelled, Suppressed,
	}
}

// Final reports whether the gateway will not change the email any more. Only an operator's replay
// and feedback from the provider still can.
func (s Status) Final() bool {
	return slices.Contains([]Status{Sent, Failed, Expired, Cancelled, Suppressed}, s)
}

// Claimable reports whether a worker may start an attempt, and whether a cancel, an expiry or a
// suppression may still stop the email.
func (s Status) Claimable() bool {
	return s == Pending || s == Enqueued || s == RetryScheduled
}

// Replayable reports whether a person may request that the email is sent again.
func (s Status) Replayable() bool {
	return s == Failed || s == Expired || s == Cancelled
}
