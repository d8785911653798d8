// Package crashpoint marks the places between two steps at which a process may crash.
//
// In a build with the tag crashpoints, CRASH_AT=send/claimed in the environment makes the process
// kill itself when it first reaches that place, CRASH_AT=send/claimed:3 the third time; with
// CRASH_WITH=STOP it freezes instead, until it gets SIGCONT. A test can so reach each place on
// purpose. In every other build, including all releases, At is empty and compiles to nothing, not
// even the names.
package crashpoint

// Point is a place between two steps.
type Point string

// The places, each with the state that a crash there leaves.
const (
	// Accepting an email or recipients (api).

	// AcceptBegun: nothing is written, and nothing was answered.
	AcceptBegun Point = "accept/begun"
	// AcceptCommitted: rows and idempotency key are committed, and the client has no response.
	AcceptCommitted Point = "accept/committed"

	// Accepting a batch of emails (api): one transaction, between AcceptBegun and AcceptCommitted.

	// BatchClaimed: the key, the aggregates and the quotas are taken; the transaction rolls back.
	BatchClaimed Point = "batch/claimed"
	// BatchPiece: the same, after a part of the emails.
	BatchPiece Point = "batch/piece"
	// BatchWritten: the same, after the last email.
	BatchWritten Point = "batch/written"

	// Accepting a mailing (api): one transaction after the file was stored.

	// UploadStored: the file is in the storage, and no row refers to it.
	UploadStored Point = "upload/stored"
	// UploadClaimed: the same; the transaction rolls back, and with it filename and key.
	UploadClaimed Point = "upload/claimed"
	// UploadWritten: the same, after the last line.
	UploadWritten Point = "upload/written"
	// UploadCommitted: the mailing is committed, and the client has no response.
	UploadCommitted Point = "upload/committed"

	// Publishing due rows to their queue (dispatcher).

	// DispatchTaken: a batch is ENQUEUED, or leased, and none of its tasks is published.
	DispatchTaken Point = "dispatch/taken"
	// DispatchQueued: the same, but some tasks are published.
	DispatchQueued Point = "dispatch/queued"
	// DispatchPublished: all tasks of a batch are published. Jobs are leased and not PUBLISHED.
	DispatchPublished Point = "dispatch/published"
	// DispatchRecorded: nothing has to be repaired.
	DispatchRecorded Point = "dispatch/recorded"

	// Sending an email (worker). Its task stays active on the queue.

	// SendLoaded: the row is ENQUEUED, nothing is written.
	SendLoaded Point = "send/loaded"
	// SendTurn: the same, and a token of the send rate is used.
	SendTurn Point = "send/turn"
	// SendClaimed: the row is PROCESSING under a lease, and it is unknown whether the provider was
	// called.
	SendClaimed Point = "send/claimed"
	// SendAnswered: the same, and the provider has the email.
	SendAnswered Point = "send/answered"
	// SendRecorded: everything is written, and the task is still active on the queue.
	SendRecorded Point = "send/recorded"

	// Expanding a mailing (worker). The job is not acknowledged at these points: the broker redelivers it.

	// ExpandLocked: the mailing is held by a job that is gone.
	ExpandLocked Point = "expand/locked"
	// ExpandRead: the same; the entries read are lost.
	ExpandRead Point = "expand/read"
	// ExpandChecked: the same, and the results of the domain checks are lost.
	ExpandChecked Point = "expand/checked"
	// ExpandCommitted: a batch became emails, and the cursor has advanced.
	ExpandCommitted Point = "expand/committed"
	// ExpandContinued: another job for the rest is in the outbox, and this one is redelivered too.
	ExpandContinued Point = "expand/continued"
	// ExpandFinished: the mailing needs no further job, and gets one.
	ExpandFinished Point = "expand/finished"

	// Storing recipients (worker), and a job that waits for its retry. The broker redelivers what
	// was not acknowledged.

	// IntakeWritten: the recipients of a batch are stored, and their messages are still queued.
	IntakeWritten Point = "intake/written"
	// PassConfirmed: the messages to be retried are on two queues.
	PassConfirmed Point = "pass/confirmed"

	// Recording the provider's events (worker). The queue delivers what was not deleted again.

	// FeedbackRecorded: the events of a batch are committed, and their messages are still in the queue.
	FeedbackRecorded Point = "feedback/recorded"

	// Delivering events to a webhook endpoint (worker). The endpoint's lease ends after a minute.

	// WebhookLeased: nothing was read.
	WebhookLeased Point = "webhook/leased"
	// WebhookRead: a page was read, and nothing was sent.
	WebhookRead Point = "webhook/read"
	// WebhookAnswered: the page was sent, and neither cursor nor failed deliveries are written: the
	// page is repeated.
	WebhookAnswered Point = "webhook/answered"
	// WebhookRecorded: nothing has to be repeated.
	WebhookRecorded Point = "webhook/recorded"
)

// Points lists all of them.
func Points() []Point {
	return []Point{
		AcceptBegun, AcceptCommitted,
		BatchClaimed, BatchPiece, BatchWritten,
		UploadStored, UploadClaimed, UploadWritten, UploadCommitted,
		DispatchTaken, DispatchQueued, DispatchPublished, DispatchRecorded,
		SendLoaded, SendTurn, SendClaimed, SendAnswered, SendRecorded,
		ExpandLocked, ExpandRead, ExpandChecked, ExpandCommitted, ExpandContinued, ExpandFinished,
		IntakeWritten, PassConfirmed,
		FeedbackRecorded,
		WebhookLeased, WebhookRead, WebhookAnswered, WebhookRecorded,
	}
}
