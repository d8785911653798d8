// Package recipient stores the recipients that the api has accepted and published to RabbitMQ, in
// batches. The worker registers its two handlers for the queue and for the queue's DLQ.
//
// A message only names an outbox row, so it may be delivered twice, late or in any order: the row
// is the truth, and storing it again changes nothing.
package recipient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"email-gateway/shared/crashpoint"
	"email-gateway/shared/email"
	"email-gateway/shared/store"
	"email-gateway/shared/store/deadletter"
	recipientstore "email-gateway/shared/store/recipient"
	"email-gateway/shared/telemetry"
	"email-gateway/worker/internal/queue"
)

// CodeRefused is the reason of a dead letter whose recipient the database has refused on every try.
const CodeRefused = "RECIPIENT_REFUSED"

// batchTime bounds the work on one batch, including the search for its bad rows. It is shorter than
// the worker's shutdown timeout.
const batchTime = 30 * time.Second

// Store has the database operations of the Upserter. *store.Store implements it.
type Store interface {
	UpsertRecipients(ctx context.Context, outboxIDs []uuid.UUID) []error
	DeadLetterImport(ctx context.Context, outboxID uuid.UUID, reason, detail string, attempts int) error
	DeadLetterTask(ctx context.Context, t deadletter.Task) error
}

// Database receives the failures of statements, after which the consumer takes no task until Postgres answers.
type Database interface {
	Failed()
}

// Params configure an Upserter. All are required.
type Params struct {
	Log      *slog.Logger
	Store    Store
	Database Database
	Metrics  *Metrics
	// Concurrency is how many messages of a batch are dead-lettered concurrently.
	Concurrency int
	// RetryDelay is how long a message waits before its next try.
	RetryDelay time.Duration
}

// Upserter stores recipients.
type Upserter struct {
	log     *slog.Logger
	store   Store
	metrics *Metrics
	p       Params
}

// New makes an Upserter.
func New(p Params) *Upserter {
	return &Upserter{log: p.Log, store: p.Store, metrics: p.Metrics, p: p}
}

// Handle is the handler of recipients_queue. Failed messages are retried; when their tries are used
// up the queue moves them to the DLQ.
func (u *Upserter) Handle(ctx context.Context, tasks []queue.Task) []error {
	return u.work(ctx, tasks, func(ctx context.Context, task queue.Task, _ uuid.UUID, err error) error {
		return u.later(err)
	})
}

// HandleDead is the handler of the DLQ. It tries once more. A recipient that the database still
// refuses becomes a dead letter; while the database is down or not migrated, messages stay in the
// DLQ.
func (u *Upserter) HandleDead(ctx context.Context, tasks []queue.Task) []error {
	return u.work(ctx, tasks, func(ctx context.Context, task queue.Task, id uuid.UUID, err error) error {
		if !errors.Is(err, recipientstore.ErrRefused) {
			return u.later(err)
		}
		// The first try, the retries, and the one just made.
		attempts := task.Retried + 2
		if failed := u.store.DeadLetterImport(ctx, id, CodeRefused, explain(err), attempts); failed != nil {
			return u.later(failed)
		}
		u.deadLettered(task, CodeRefused, err)
		return nil
	})
}

// work upserts the named recipients. A task that names none is dead-lettered, and one that failed
// is passed to failed.
func (u *Upserter) work(
	ctx context.Context, tasks []queue.Task, failed func(ctx context.Context, task queue.Task, id uuid.UUID, err error) error,
) []error {
	start := time.Now()
	// A batch that has begun is finished: a stop waits for it.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), batchTime)
	defer cancel()

	results := make([]error, len(tasks))
	ids, places := make([]uuid.UUID, 0, len(tasks)), make([]int, 0, len(tasks))
	var deadLetters errgroup.Group
	deadLetters.SetLimit(max(u.p.Concurrency, 1))
	for i, task := range tasks {
		id, err := outboxID(task.Payload)
		if err != nil {
			deadLetters.Go(func() error {
				results[i] = u.deadLetter(ctx, task, email.CodeInvalidPayload, err)
				return nil
			})
			continue
		}
		ids, places = append(ids, id), append(places, i)
	}
	upserted := 0
	answers := u.store.UpsertRecipients(ctx, ids)
	crashpoint.At(crashpoint.IntakeWritten)
	for n, err := range answers {
		i := places[n]
		if err == nil {
			upserted++
			continue
		}
		deadLetters.Go(func() error {
			if errors.Is(err, store.ErrNotFound) {
				results[i] = u.deadLetter(ctx, tasks[i], email.CodeOutboxNotFound, err)
			} else {
				results[i] = failed(ctx, tasks[i], ids[n], err)
			}
			return nil
		})
	}
	// The results are in results: these functions return no error.
	_ = deadLetters.Wait()
	u.metrics.upserted.Add(float64(upserted))
	u.metrics.took(time.Since(start), len(tasks))
	u.logRetries(tasks, results)
	return results
}

// outboxID parses a message: {"outboxId": "…"}.
func outboxID(payload []byte) (uuid.UUID, error) {
	var message struct {
		OutboxID string `json:"outboxId"`
	}
	if err := json.Unmarshal(payload, &message); err != nil {
		return uuid.Nil, fmt.Errorf("decode message: %w", err)
	}
	id, err := uuid.Parse(message.OutboxID)
	if err != nil || id == uuid.Nil {
		return uuid.Nil, errors.New("decode message: outboxId is not a UUID")
	}
	return id, nil
}

// deadLetter stores a dead letter for a message without an outbox row.
func (u *Upserter) deadLetter(ctx context.Context, task queue.Task, code string, cause error) error {
	err := u.store.DeadLetterTask(ctx, deadletter.Task{
		Target: email.TargetRecipients, Reason: code, Detail: explain(cause), Payload: task.Payload, TaskID: task.ID,
	})
	if err != nil {
		return u.later(err)
	}
	u.deadLettered(task, code, cause)
	return nil
}

func (u *Upserter) deadLettered(task queue.Task, code string, cause error) {
	u.metrics.dead.WithLabelValues(code).Inc()
	u.log.Error("recipient dead-lettered", telemetry.OutboxID, task.ID, "code", code, "error", explain(cause))
}

// later returns the error that makes the queue retry the task.
func (u *Upserter) later(err error) error {
	if !errors.Is(err, recipientstore.ErrRefused) && !errors.Is(err, recipientstore.ErrLocked) {
		u.p.Database.Failed()
	}
	u.metrics.retried.WithLabelValues(reasonOf(err)).Inc()
	return &queue.RetryLater{Delay: u.p.RetryDelay, Reason: "db_error: " + explain(err)}
}

// logRetries logs, in one line, the tasks that will be retried: they mostly fail for the same
// reason.
func (u *Upserter) logRetries(tasks []queue.Task, results []error) {
	var failed []string
	reason := ""
	for i, err := range results {
		if err != nil {
			if failed = append(failed, tasks[i].ID); reason == "" {
				reason = err.Error()
			}
		}
	}
	if len(failed) > 0 {
		u.log.Warn("recipients not stored, retrying", "count", len(failed), "total", len(results),
			telemetry.OutboxID, telemetry.IDs(len(failed), func(i int) string { return failed[i] }), "reason", reason)
	}
}

// maxReason limits a reason to what fits into a message header and a dead letter, in bytes.
const maxReason = 500

// explain returns an error as one line with addresses masked.
func explain(err error) string {
	switch {
	case errors.Is(err, recipientstore.ErrLocked):
		return recipientstore.ErrLocked.Error()
	case errors.Is(err, store.ErrUnavailable):
		return store.ErrUnavailable.Error()
	case errors.Is(err, store.ErrUnknownOutcome):
		return store.ErrUnknownOutcome.Error()
	}
	line := email.MaskText(strings.Join(strings.Fields(err.Error()), " "))
	return strings.ToValidUTF8(line[:min(len(line), maxReason)], "")
}
