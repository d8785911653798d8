// Package crashpoint marks the places between two steps at which a process may die.
//
// In a build with the tag crashpoints, CRASH_AT=send/claimed in the environment makes the
// process kill itself the first time it comes by that place, CRASH_AT=send/claimed:3 the
// third time; with CRASH_WITH=STOP it is frozen instead, until it gets SIGCONT. So a test
// reaches each place on purpose. In every other build, and so in all that is released, At
// is empty and leaves nothing behind, not even the names.
package crashpoint

// Point is a place between two steps.
type Point string

// The places, each with what a crash there leaves behind.
const (
	// Accepting an email or recipients (api).

	// AcceptBegun: nothing is written, and nothing was answered.
	AcceptBegun Point = "accept/begun"
	// AcceptCommitted: rows and idempotency key are there, and the client does not know.
	AcceptCommitted Point = "accept/committed"

	// Taking in a mailing (api): one transaction behind the stored file.

	// UploadStored: the file lies in the storage, and no row names it.
	UploadStored Point = "upload/stored"
	// UploadClaimed: the same; the transaction falls, and with it filename and key.
	UploadClaimed Point = "upload/claimed"
	// UploadWritten: the same, behind the last line.
	UploadWritten Point = "upload/written"
	// UploadCommitted: the mailing is there, and the client does not know.
	UploadCommitted Point = "upload/committed"

	// Putting due rows on their queue (dispatcher).

	// DispatchTaken: a batch is ENQUEUED, or leased, and none of its tasks is published.
	DispatchTaken Point = "dispatch/taken"
	// DispatchQueued: the same, but for the tasks that were published.
	DispatchQueued Point = "dispatch/queued"
	// DispatchPublished: all tasks of a batch are published. Jobs are leased and not PUBLISHED.
	DispatchPublished Point = "dispatch/published"
	// DispatchRecorded: nothing has to be repaired.
	DispatchRecorded Point = "dispatch/recorded"

	// Sending an email (worker). Its task stays in the queue's list of those in work.

	// SendLoaded: the row is ENQUEUED, nothing is written.
	SendLoaded Point = "send/loaded"
	// SendTurn: the same, and a token of the send rate is spent.
	SendTurn Point = "send/turn"
	// SendClaimed: the row is PROCESSING under a lease, and nobody can tell that the
	// provider was not asked.
	SendClaimed Point = "send/claimed"
	// SendAnswered: the same, and the provider has the email.
	SendAnswered Point = "send/answered"
	// SendRecorded: all is written, and the queue believes that the task is in work.
	SendRecorded Point = "send/recorded"

	// Turning a mailing into emails (worker). The broker has no acknowledgement and gives
	// the job to somebody else.

	// ExpandLocked: the mailing is in the hands of a job that is gone.
	ExpandLocked Point = "expand/locked"
	// ExpandRead: the same; what was read is lost.
	ExpandRead Point = "expand/read"
	// ExpandChecked: the same, and the domains were looked up in vain.
	ExpandChecked Point = "expand/checked"
	// ExpandCommitted: a batch became emails, the cursor stands behind it.
	ExpandCommitted Point = "expand/committed"
	// ExpandContinued: another job for the rest stands in the outbox, and this one comes
	// again too.
	ExpandContinued Point = "expand/continued"
	// ExpandFinished: the mailing needs no job any more, and gets one.
	ExpandFinished Point = "expand/finished"

	// Writing recipients down (worker), and a job that has to wait for its next try. The
	// broker gives what was not acknowledged to somebody else.

	// IntakeWritten: the recipients of a batch are there, its messages too.
	IntakeWritten Point = "intake/written"
	// PassConfirmed: the messages to be tried again stand on two queues.
	PassConfirmed Point = "pass/confirmed"
)

// Points lists all of them.
func Points() []Point {
	return []Point{
		AcceptBegun, AcceptCommitted,
		UploadStored, UploadClaimed, UploadWritten, UploadCommitted,
		DispatchTaken, DispatchQueued, DispatchPublished, DispatchRecorded,
		SendLoaded, SendTurn, SendClaimed, SendAnswered, SendRecorded,
		ExpandLocked, ExpandRead, ExpandChecked, ExpandCommitted, ExpandContinued, ExpandFinished,
		IntakeWritten, PassConfirmed,
	}
}
