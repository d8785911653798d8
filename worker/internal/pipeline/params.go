package pipeline

import (
	"context"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store/deadletter"
	"email-gateway/shared/store/lane"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/telemetry"
	"email-gateway/worker/internal/breaker"
	"email-gateway/worker/internal/provider"
)

// Loader reads an email; store.ErrNotFound if there is none.
type Loader interface {
	Load(ctx context.Context, id uuid.UUID) (*outbox.LoadedEmail, error)
	// ReadBody reads html and text of an email that are too large to be loaded with it.
	ReadBody(ctx context.Context, id uuid.UUID) (html, text string, err error)
	// ReadFields reads the fields of a mailing's email that are too large to be loaded with it.
	ReadFields(ctx context.Context, id uuid.UUID) ([]string, error)
	// SESMessageID returns the provider's id of a sent email, "" if it is not known.
	SESMessageID(ctx context.Context, id uuid.UUID) (string, error)
}

// Advancer changes an email's status, log and events in one commit, if the transition's guard
// holds.
type Advancer interface {
	Advance(ctx context.Context, t outbox.Transition) (outbox.Advanced, error)
}

// Outbox has the operations that are not status transitions.
type Outbox interface {
	DropTask(ctx context.Context, id uuid.UUID, delay time.Duration) (locked bool, err error)
	NoteDroppedTask(ctx context.Context, id uuid.UUID) error
	DeadLetterTask(ctx context.Context, t deadletter.Task) error
	// WakeLanes makes the dispatchers read the lanes again because emails in them are due.
	WakeLanes(ctx context.Context, lanes []lane.Lanes) error
}

// Pacer limits the recipients per second to the provider's send rate.
type Pacer interface {
	Wait(ctx context.Context, recipients int) error
	// Borrow records recipients that are sent to without a wait: later emails wait for them.
	Borrow(recipients int)
	// Return gives tokens back for an email that was not sent.
	Return(recipients int)
	// Throttled reports that the provider throttled a call that began then.
	Throttled(start time.Time)
	// Accepted reports that the provider accepted a call that began then.
	Accepted(start time.Time)
}

// Breaker is the provider's circuit breaker, shared by all workers. It is asked before every call, and
// the result is reported to it.
type Breaker interface {
	// Withhold returns a failure if the call must not be made.
	Withhold(c breaker.Call) *provider.Failure
	// Answered reports that the provider accepted the email.
	Answered(c breaker.Call)
	// Failed reports that it did not. If notCounted is true the email must be released without
	// counting the attempt, whatever its outcome.
	Failed(c breaker.Call, f *provider.Failure) (notCounted bool)
	// Skipped reports that the probe with this id ended without a call.
	Skipped(id uuid.UUID)
}

// RetryRoom bounds how many retries wait on a queue; the others wait in the outbox.
type RetryRoom interface {
	Free(ctx context.Context, queue string) bool
}

// Params configure a Pipeline.
type Params struct {
	Log         *slog.Logger
	Loader      Loader
	Advancer    Advancer
	Outbox      Outbox
	Pacer       Pacer
	Sender      provider.Sender
	Breaker     Breaker
	RetryRoom   RetryRoom
	Templates   Templates
	Attachments Attachments
	Links       Links
	Metrics     *Metrics
	MaxAttempts int
	Backoff     email.Backoff
	// TTL is how long an email of a mailing may take from its first attempt on; before that no
	// deadline applies. A single email has its own deadline.
	TTL time.Duration
	// FeedbackWindow is how long the pipeline waits for feedback if the outcome of a call is
	// unknown; 0 = there is no feedback.
	FeedbackWindow time.Duration
	// Sent is called for each accepted email with the time from its task's receipt to its recorded
	// result. Optional.
	Sent func(took time.Duration)
	// PendingResults stores results for the dispatchers while the database does not answer. Optional.
	PendingResults PendingResults
	// Database receives failed and late statements. Optional.
	Database Database
	// Tracer creates the spans of an attempt's steps.
	Tracer telemetry.Tracer
}
