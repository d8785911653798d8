// Package email holds the nouns of the gateway and the rules that need no database:
// what an email is, which states it may take, when it is tried again, how it is
// named in a log. It imports the standard library only, so that the api, the
// worker and the store can all build on it.
package email

import "slices"

// Status is where an email stands: the column email_outbox.status, the api's
// "status" and email_logs.status are all this one value.
type Status string

const (
	// Pending: the dispatcher must act. Set by the api on acceptance, and by the
	// worker when it gives an email back before calling the provider.
	Pending Status = "PENDING"
	// Enqueued: the dispatcher put a task for it on the queue.
	Enqueued Status = "ENQUEUED"
	// Processing: a worker won the fence and holds a lease; it may be at the provider.
	Processing Status = "PROCESSING"
	// RetryScheduled: refused for now; a task waits on the queue until it is due.
	RetryScheduled Status = "RETRY_SCHEDULED"
	// OutcomeUnknown: the request left and no usable answer came back.
	OutcomeUnknown Status = "OUTCOME_UNKNOWN"

	// Sent: the provider accepted it.
	Sent Status = "SENT"
	// Failed: refused for good, invalid, or out of tries. It has a dead letter.
	Failed Status = "FAILED"
	// Expired: its deadline passed before the provider took it.
	Expired Status = "EXPIRED"
	// Cancelled: its tenant withdrew it in time.
	Cancelled Status = "CANCELLED"
	// Suppressed: its address must not be mailed.
	Suppressed Status = "SUPPRESSED"
)

// Statuses lists every status of an email.
func Statuses() []Status {
	return []Status{
		Pending, Enqueued, Processing, RetryScheduled, OutcomeUnknown,
		Sent, Failed, Expired, Cancelled, Suppressed,
	}
}

// Final says that nothing of ours will move the email again. Only an operator's
// replay and news from the provider still can.
func (s Status) Final() bool {
	return slices.Contains([]Status{Sent, Failed, Expired, Cancelled, Suppressed}, s)
}

// Claimable says that a worker may start an attempt, and that a cancel, an expiry
// or a suppression may still stop the email.
func (s Status) Claimable() bool {
	return s == Pending || s == Enqueued || s == RetryScheduled
}

// Replayable says that a person may ask for the email to be sent again.
func (s Status) Replayable() bool {
	return s == Failed || s == Expired || s == Cancelled
}
