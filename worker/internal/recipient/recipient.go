// Package recipient takes in recipients: it writes down, in batches, those that the
// api has accepted and RabbitMQ has carried. The worker's main function hangs its two
// handlers on the queue and on its DLQ.
//
// A message only names a row of the outbox. So it may come twice, late or in any
// order: the row decides, and doing it again changes nothing.
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
	"email-gateway/shared/telemetry"
	"email-gateway/worker/internal/queue"
)

// CodeRefused is the reason of a dead letter whose recipient the database refused,
// as often as it was tried.
const CodeRefused = "RECIPIENT_REFUSED"

// batchTime bounds the work on one batch, the search for its bad rows included. It is
// less than what the worker has for stopping.
const batchTime = 30 * time.Second

// Store is what the intake asks of the database. *store.Store is one.
type Store interface {
	UpsertRecipients(ctx context.Context, outboxIDs []uuid.UUID) []error
	BuryIntake(ctx context.Context, outboxID uuid.UUID, reason, detail string, attempts int) error
	BuryTask(ctx context.Context, t store.DeadTask) error
}

// Params make an Intake. All are needed.
type Params struct {
	Log     *slog.Logger
	Store   Store
	Metrics *Metrics
	// Concurrency is how many messages of a batch are buried at once.
	Concurrency int
	// RetryDelay is how long a message waits before its next try.
	RetryDelay time.Duration
}

// Intake writes recipients down.
type Intake struct {
	log     *slog.Logger
	store   Store
	metrics *Metrics
	p       Params
}

// New makes an Intake.
func New(p Params) *Intake {
	return &Intake{log: p.Log, store: p.Store, metrics: p.Metrics, p: p}
}

// Handle is the handler of recipients_queue. What cannot be written down is to be
// tried again; after its tries the queue moves it to the DLQ.
func (in *Intake) Handle(ctx context.Context, tasks []queue.Task) []error {
	return in.work(ctx, tasks, func(ctx context.Context, task queue.Task, _ uuid.UUID, err error) error {
		return in.later(err)
	})
}

// HandleDead is the handler of the DLQ. It tries once more. A recipient that the
// database refuses even now becomes a dead letter; while the database is away, or not
// fit for us, everything stays where it is.
func (in *Intake) HandleDead(ctx context.Context, tasks []queue.Task) []error {
	return in.work(ctx, tasks, func(ctx context.Context, task queue.Task, id uuid.UUID, err error) error {
		if !errors.Is(err, store.ErrRefused) {
			return in.later(err)
		}
		// The first try, those after it, and the one that was just made.
		attempts := task.Retried + 2
		if burial := in.store.BuryIntake(ctx, id, CodeRefused, explain(err), attempts); burial != nil {
			return in.later(burial)
		}
		in.buried(task, CodeRefused, err)
		return nil
	})
}

// work upserts what the tasks name. A task that names nothing is buried, and one that
// failed is left to the caller.
func (in *Intake) work(
	ctx context.Context, tasks []queue.Task, failed func(ctx context.Context, task queue.Task, id uuid.UUID, err error) error,
) []error {
	begun := time.Now()
	// A batch that was begun is finished: a stop waits for it.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), batchTime)
	defer cancel()

	results := make([]error, len(tasks))
	ids, places := make([]uuid.UUID, 0, len(tasks)), make([]int, 0, len(tasks))
	var burials errgroup.Group
	burials.SetLimit(max(in.p.Concurrency, 1))
	for i, task := range tasks {
		id, err := outboxID(task.Payload)
		if err != nil {
			burials.Go(func() error {
				results[i] = in.bury(ctx, task, email.CodeInvalidPayload, err)
				return nil
			})
			continue
		}
		ids, places = append(ids, id), append(places, i)
	}
	upserted := 0
	answers := in.store.UpsertRecipients(ctx, ids)
	crashpoint.At(crashpoint.IntakeWritten)
	for n, err := range answers {
		i := places[n]
		if err == nil {
			upserted++
			continue
		}
		burials.Go(func() error {
			if errors.Is(err, store.ErrNotFound) {
				results[i] = in.bury(ctx, tasks[i], email.CodeOutboxNotFound, err)
			} else {
				results[i] = failed(ctx, tasks[i], ids[n], err)
			}
			return nil
		})
	}
	// The verdicts stand in results: no burial returns an error of its own.
	_ = burials.Wait()
	in.metrics.upserted.Add(float64(upserted))
	in.metrics.took(time.Since(begun), len(tasks))
	in.tell(tasks, results)
	return results
}

// outboxID reads a message: {"outboxId": "…"}.
func outboxID(payload []byte) (uuid.UUID, error) {
	var message struct {
		OutboxID string `json:"outboxId"`
	}
	if err := json.Unmarshal(payload, &message); err != nil {
		return uuid.Nil, fmt.Errorf("decode message: %w", err)
	}
	id, err := uuid.Parse(message.OutboxID)
	if err != nil || id == uuid.Nil {
		return uuid.Nil, errors.New("decode message: outboxId is not the id of a row")
	}
	return id, nil
}

// bury writes the dead letter of a message that has no row to write it on.
func (in *Intake) bury(ctx context.Context, task queue.Task, code string, cause error) error {
	err := in.store.BuryTask(ctx, store.DeadTask{
		Target: email.TargetRecipients, Reason: code, Detail: explain(cause), Payload: task.Payload, TaskID: task.ID,
	})
	if err != nil {
		return in.later(err)
	}
	in.buried(task, code, cause)
	return nil
}

func (in *Intake) buried(task queue.Task, code string, cause error) {
	in.metrics.buried.WithLabelValues(code).Inc()
	in.log.Error("recipient buried", telemetry.OutboxID, task.ID, "code", code, "cause", explain(cause))
}

// later asks for the same task again.
func (in *Intake) later(err error) error {
	in.metrics.retried.WithLabelValues(reasonOf(err)).Inc()
	return &queue.RetryLater{Delay: in.p.RetryDelay, Reason: "db_error: " + explain(err)}
}

// tell logs, in one line, that tasks have to come again: they mostly have one cause.
func (in *Intake) tell(tasks []queue.Task, results []error) {
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
		in.log.Warn("recipients not written down; to be tried again", "count", len(failed), "total", len(results),
			telemetry.OutboxID, telemetry.IDs(len(failed), func(i int) string { return failed[i] }), "reason", reason)
	}
}

// maxReason is what a message's header, a dead letter and an operator's patience
// hold of a reason, in bytes.
const maxReason = 500

// explain is an error in one line that may be shown to operators: masked.
func explain(err error) string {
	switch {
	case errors.Is(err, store.ErrLocked):
		return store.ErrLocked.Error()
	case errors.Is(err, store.ErrUnavailable):
		return store.ErrUnavailable.Error()
	case errors.Is(err, store.ErrUnknownOutcome):
		return store.ErrUnknownOutcome.Error()
	}
	line := email.MaskText(strings.Join(strings.Fields(err.Error()), " "))
	return strings.ToValidUTF8(line[:min(len(line), maxReason)], "")
}
