// Package mailing expands mailings into emails and tracks them until they complete. The worker
// registers a Processor as the handler of mailing jobs; the dispatcher runs three loops: Recovery,
// EntryActionLoop and Counter. Any number of each may run at once.
//
// A job's message names a mailing and the generation of its jobs. All state is in Postgres, so a
// message may be delivered twice, late or not at all.
package mailing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/crashpoint"
	"email-gateway/shared/email"
	"email-gateway/shared/store"
	"email-gateway/shared/store/deadletter"
	"email-gateway/shared/store/lane"
	mailingstore "email-gateway/shared/store/mailing"
	"email-gateway/shared/store/recipient"
	"email-gateway/shared/telemetry"
	"email-gateway/worker/internal/mx"
	"email-gateway/worker/internal/queue"
)

// CodeJobFailed is the reason of the dead letter of a job whose tries are used up.
const CodeJobFailed = "MAILING_JOB_FAILED"

const (
	// jobTime is how long a job runs before it leaves the rest to another one, so that mailings
	// take turns and a stop of the worker need not wait. A worker runs one job at a time: another
	// company's mailing waits for the jobs before it on the queue. Changing from one job to the
	// next takes some 50 ms.
	jobTime = 3 * time.Second
	// leadDelay is how long a mailing waits while the maximum number of its emails are queued.
	leadDelay = 5 * time.Second
	// quotaDelay is how often a mailing checks its company's quota again: an operator may raise it
	// before the day is over.
	quotaDelay = time.Minute
	// pausedDelay is how often a mailing checks whether its company's mailings are still paused, and how
	// long it takes at most to go on after they were resumed.
	pausedDelay = 10 * time.Second
	// batchSize is the number of entries per commit, which takes some 100 ms.
	batchSize = 1000
)

// Store has the database operations of a job. *store.Store implements it.
type Store interface {
	LockMailing(ctx context.Context, id uuid.UUID, generation int, stale, live time.Duration) (mailingstore.Job, mailingstore.Lock, error)
	HoldMailing(ctx context.Context, job *mailingstore.Job) (bool, error)
	CountLane(ctx context.Context, laneID int64, limit int) (int, error)
	NextEntries(ctx context.Context, job *mailingstore.Job, positions []int64, limit int) (mailingstore.EntryPage, error)
	FindMailingRoom(ctx context.Context, company uuid.UUID) (mailingstore.Room, error)
	Expand(ctx context.Context, job *mailingstore.Job, x mailingstore.Expansion) (queued int, held bool, err error)
	FailJob(ctx context.Context, job *mailingstore.Job, f mailingstore.FailedJob) (bool, error)
	DeadLetterTask(ctx context.Context, t deadletter.Task) error
	WakeLanes(ctx context.Context, lanes []lane.Lanes) error
}

// Domains checks whether a domain accepts mail; it fails only when ctx ends.
type Domains interface {
	Check(ctx context.Context, domain string) (mx.Result, error)
}

// Database receives the failures of statements, after which the consumer takes no job until Postgres answers.
type Database interface {
	Failed()
}

// Params configure a Processor. All but the last two are required.
type Params struct {
	Log      *slog.Logger
	Store    Store
	Database Database
	Domains  Domains
	Metrics  *Metrics
	// UnsubscribeURL returns a recipient's link, for a subject that contains it.
	UnsubscribeURL func(company, mailing uuid.UUID, address string) string
	// Lead is how many emails of a mailing may be queued.
	Lead int
	// StaleAfter is how long a job may be silent before another one takes over.
	StaleAfter time.Duration

	JobTime   time.Duration // 0 = 3 s
	BatchSize int           // 0 = 1000 entries
}

// Processor handles the jobs of mailings. It is safe for concurrent use.
type Processor struct {
	Params
}

// New makes a Processor.
func New(p Params) *Processor {
	if p.JobTime == 0 {
		p.JobTime = jobTime
	}
	if p.BatchSize == 0 {
		p.BatchSize = batchSize
	}
	return &Processor{p}
}

// live is the age of a heartbeat up to which its job is certainly alive; from StaleAfter on it is
// certainly dead. In between, the check is repeated.
func (p *Processor) live() time.Duration { return p.StaleAfter / 3 }

// heartbeat is half of live, so that one may be late.
func (p *Processor) heartbeat() time.Duration { return p.live() / 2 }

// Handle is the handler of mailing.jobs.process.
func (p *Processor) Handle(ctx context.Context, tasks []queue.Task) []error {
	answers := make([]error, len(tasks))
	for i, task := range tasks {
		answers[i] = p.handle(ctx, task)
	}
	return answers
}

// message is a job's message on the queue.
type message struct {
	MailingID  uuid.UUID `json:"mailingId"`
	StorageURL string    `json:"storageUrl"`
	Generation *int      `json:"generation"`
}

func decode(payload []byte) (message, error) {
	var m message
	switch err := json.Unmarshal(payload, &m); {
	case err != nil:
		return m, fmt.Errorf("decode job: %w", err)
	case m.MailingID == uuid.Nil:
		return m, errors.New("mailingId is missing")
	case m.Generation == nil:
		return m, errors.New("generation is missing")
	}
	return m, nil
}

func (p *Processor) handle(stop context.Context, task queue.Task) error {
	// A write that has begun is finished: a stop is checked between the steps.
	ctx := context.WithoutCancel(stop)
	m, err := decode(task.Payload)
	if err != nil {
		return p.deadLetter(ctx, task, email.CodeInvalidPayload, err)
	}
	log := p.Log.With(telemetry.OutboxID, task.ID, telemetry.MailingID, m.MailingID)
	held, lock, err := p.Store.LockMailing(ctx, m.MailingID, *m.Generation, p.StaleAfter, p.live())
	switch {
	case errors.Is(err, recipient.ErrLocked):
		return p.locked(log, err)
	case err != nil:
		return p.writeFailed(log, err)
	}
	switch lock {
	case mailingstore.Locked:
		crashpoint.At(crashpoint.ExpandLocked)
	case mailingstore.Unknown:
		return p.deadLetter(ctx, task, email.CodeOutboxNotFound, errors.New("the mailing does not exist"))
	case mailingstore.Silent:
		p.Metrics.job("silent")
		return &queue.RetryLater{Delay: p.live(), Uncounted: true, Reason: "the mailing's job has sent no heartbeat recently"}
	case mailingstore.Held:
		p.Metrics.job("held")
		log.Info("another job is processing the mailing")
		if task.Redelivered {
			// The heartbeat may be that of this task's last delivery, whose worker was killed a moment ago. The retries
			// end when the other job does: its generation is over then, or it falls silent and is replaced.
			return &queue.RetryLater{Delay: p.live(), Uncounted: true, Reason: "another job is processing the mailing, or its worker stopped a moment ago"}
		}
		return nil
	default:
		p.Metrics.job("obsolete")
		log.Debug("mailing job is obsolete", "generation", *m.Generation)
		return nil
	}
	log = log.With(telemetry.CompanyID, held.CompanyID, telemetry.RequestID, held.RequestID)
	r := run{Processor: p, log: log, job: &held, startedAt: time.Now()}
	switch err := r.expand(stop, ctx); {
	case errors.Is(err, recipient.ErrLocked):
		return p.locked(log, err)
	case errors.Is(err, errLost):
		// The mailing was paused, cancelled or taken over, or the answer to a write was lost, in
		// which case no job holds it. The retry finds out.
		p.Metrics.job("lost")
		log.Info("the job no longer holds the mailing")
		return &queue.RetryLater{Delay: p.live(), Uncounted: true, Reason: "the job no longer holds the mailing"}
	case err != nil:
		return p.fail(ctx, log, &held, task, err)
	}
	return nil
}

// fail releases the mailing. A database outage does not count as a try.
func (p *Processor) fail(ctx context.Context, log *slog.Logger, job *mailingstore.Job, task queue.Task, cause error) error {
	reason := email.MaskText(cause.Error())
	last := task.LastTry && !store.IsOutage(cause)
	applied, err := p.Store.FailJob(ctx, job, mailingstore.FailedJob{
		Reason: CodeJobFailed, Detail: reason, TaskID: task.ID, Payload: task.Payload, Last: last,
	})
	switch {
	case errors.Is(err, recipient.ErrLocked):
		return p.locked(log, errors.Join(cause, err))
	case err != nil:
		return p.writeFailed(log, errors.Join(cause, err))
	case !applied:
		p.Metrics.job("lost")
		log.Warn("the mailing's job failed and no longer holds the mailing", "error", reason)
		return &queue.RetryLater{Delay: p.live(), Uncounted: true, Reason: reason}
	case last:
		p.Metrics.job("dead")
		log.Error("mailing failed", "error", reason)
		return &queue.Dead{Reason: reason}
	}
	p.Metrics.job("failed")
	log.Error("mailing job failed", "error", reason)
	return &queue.RetryLater{Reason: reason, Uncounted: store.IsOutage(cause)}
}

// locked is the result when another transaction has locked the mailing's row or its company's quotas: the
// job is retried later, so that other mailings can run.
func (p *Processor) locked(log *slog.Logger, err error) error {
	p.Metrics.job("lost")
	log.Warn("another transaction has locked the mailing or its company's quotas, retrying the job", "error", email.MaskText(err.Error()))
	return &queue.RetryLater{Delay: p.live(), Uncounted: true, Reason: "another transaction has locked the mailing or its company's quotas"}
}

// writeFailed is the result when nothing could be written. The mailing keeps its heartbeat and is
// taken over once that is stale.
func (p *Processor) writeFailed(log *slog.Logger, err error) error {
	p.Metrics.job("failed")
	p.Database.Failed()
	if !store.IsOutage(err) {
		return err
	}
	reason := email.MaskText(err.Error())
	log.Error("cannot record the mailing job's result", "error", reason)
	return &queue.RetryLater{Reason: reason, Uncounted: true}
}

// deadLetter stores a dead letter for a message that does not name a job.
func (p *Processor) deadLetter(ctx context.Context, task queue.Task, code string, cause error) error {
	err := p.Store.DeadLetterTask(ctx, deadletter.Task{
		Target: email.TargetMailing, Reason: code, Detail: cause.Error(), Payload: task.Payload, TaskID: task.ID,
	})
	if err != nil {
		return p.writeFailed(p.Log.With(telemetry.OutboxID, task.ID), err)
	}
	p.Metrics.job("invalid")
	p.Log.Error("task dead-lettered", telemetry.OutboxID, task.ID, "code", code, "error", email.MaskText(cause.Error()))
	return nil
}
