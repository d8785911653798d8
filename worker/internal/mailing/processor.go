// Package mailing turns mailings into emails and brings them to their end. The worker
// hangs a Processor on the queue of mailing jobs; the dispatcher runs the three loops:
// Recovery, Settler and Counter. Any number of each may run at once.
//
// A job's message says which mailing and which generation of its jobs. What is done
// and what is left stands in Postgres, so a message may come twice, late or not at all.
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
	"email-gateway/shared/telemetry"
	"email-gateway/worker/internal/mx"
	"email-gateway/worker/internal/queue"
)

// CodeJobFailed is the reason of the dead letter of a job that failed as often as it
// was tried.
const CodeJobFailed = "MAILING_JOB_FAILED"

const (
	// jobTime is how long a job works before it leaves the rest to another one: mailings
	// take turns, and a stop of the worker need not wait. A worker does one job at a time, so
	// another company's mailing waits for those that stand before it on the queue. The change
	// from one job to the next takes some 50 ms.
	jobTime = 3 * time.Second
	// leadDelay is how long a mailing waits when as many of its emails wait as may.
	leadDelay = 5 * time.Second
	// quotaDelay is how long a mailing waits at most before it looks at its company's quota
	// again: an operator may have raised it before the day is over.
	quotaDelay = time.Minute
	// batchSize entries make one commit, of some 100 ms.
	batchSize = 1000
)

// Store is what a job asks of the database. *store.Store is one.
type Store interface {
	LockMailing(ctx context.Context, id uuid.UUID, generation int, stale, live time.Duration) (store.MailingJob, store.MailingLock, error)
	HoldMailing(ctx context.Context, job *store.MailingJob) (bool, error)
	CountLane(ctx context.Context, lane int64, limit int) (int, error)
	NextEntries(ctx context.Context, job *store.MailingJob, limit int) ([]store.ExpandableEntry, error)
	FindMailingRoom(ctx context.Context, company uuid.UUID) (store.MailingRoom, error)
	Expand(ctx context.Context, job *store.MailingJob, x store.Expansion) (queued int, held bool, err error)
	FailJob(ctx context.Context, job *store.MailingJob, f store.FailedJob) (bool, error)
	BuryTask(ctx context.Context, t store.DeadTask) error
	WakeLanes(ctx context.Context, lanes []store.Lanes) error
}

// Domains says whether a domain takes mail; it fails only when ctx ends.
type Domains interface {
	Check(ctx context.Context, domain string) (mx.Verdict, error)
}

// Params make a Processor. All are needed but the last two.
type Params struct {
	Log     *slog.Logger
	Store   Store
	Domains Domains
	Metrics *Metrics
	// UnsubscribeURL makes the link of one recipient, for a subject that holds it.
	UnsubscribeURL func(company, mailing uuid.UUID, address string) string
	// Lead is how many emails of a mailing may wait to be sent.
	Lead int
	// StaleAfter is how long a job may be silent before another takes its place.
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

// live is how young a heartbeat is when its job is surely alive; stale is how old when
// it surely is not. What lies between is looked at again.
func (p *Processor) live() time.Duration { return p.StaleAfter / 3 }

// heartbeat leaves room for one that is late.
func (p *Processor) heartbeat() time.Duration { return p.live() / 2 }

// Handle is the handler of mailing.jobs.process.
func (p *Processor) Handle(ctx context.Context, tasks []queue.Task) []error {
	answers := make([]error, len(tasks))
	for i, task := range tasks {
		answers[i] = p.handle(ctx, task)
	}
	return answers
}

// message is a job as the queue carries it.
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
	// A write that was begun is finished: a stop is looked for between the steps.
	ctx := context.WithoutCancel(stop)
	m, err := decode(task.Payload)
	if err != nil {
		return p.bury(ctx, task, email.CodeInvalidPayload, err)
	}
	log := p.Log.With(telemetry.OutboxID, task.ID, telemetry.MailingID, m.MailingID)
	held, lock, err := p.Store.LockMailing(ctx, m.MailingID, *m.Generation, p.StaleAfter, p.live())
	switch {
	case errors.Is(err, store.ErrLocked):
		return p.locked(log, err)
	case err != nil:
		return p.unwritten(log, err)
	}
	switch lock {
	case store.MailingLocked:
		crashpoint.At(crashpoint.ExpandLocked)
	case store.MailingUnknown:
		return p.bury(ctx, task, email.CodeOutboxNotFound, errors.New("there is no such mailing"))
	case store.MailingSilent:
		p.Metrics.job("silent")
		return &queue.RetryLater{Delay: p.live(), Uncounted: true, Reason: "the mailing's job has not been heard of for a while"}
	case store.MailingHeld:
		p.Metrics.job("held")
		log.Info("another job is at the mailing")
		return nil
	default:
		p.Metrics.job("obsolete")
		log.Debug("the job is obsolete", "generation", *m.Generation)
		return nil
	}
	log = log.With(telemetry.CompanyID, held.CompanyID, telemetry.RequestID, held.RequestID)
	r := run{Processor: p, log: log, job: &held, begun: time.Now()}
	switch err := r.expand(stop, ctx); {
	case errors.Is(err, store.ErrLocked):
		return p.locked(log, err)
	case errors.Is(err, errLost):
		// It was paused, cancelled or taken over, or the answer to a write of ours was lost:
		// then nobody is at it. The next look tells.
		p.Metrics.job("lost")
		log.Info("the mailing is no longer in this job's hands")
		return &queue.RetryLater{Delay: p.live(), Uncounted: true, Reason: "the mailing is no longer in this job's hands"}
	case err != nil:
		return p.fail(ctx, log, &held, task, err)
	}
	return nil
}

// fail lets go of the mailing. An outage of Postgres is not the job's fault: the tries
// are kept for what is.
func (p *Processor) fail(ctx context.Context, log *slog.Logger, job *store.MailingJob, task queue.Task, cause error) error {
	reason := email.MaskText(cause.Error())
	last := task.LastTry && !store.IsOutage(cause)
	applied, err := p.Store.FailJob(ctx, job, store.FailedJob{
		Reason: CodeJobFailed, Detail: reason, TaskID: task.ID, Payload: task.Payload, Last: last,
	})
	switch {
	case errors.Is(err, store.ErrLocked):
		return p.locked(log, errors.Join(cause, err))
	case err != nil:
		return p.unwritten(log, errors.Join(cause, err))
	case !applied:
		p.Metrics.job("lost")
		log.Warn("the mailing's job failed and has lost the mailing", "error", reason)
		return &queue.RetryLater{Delay: p.live(), Uncounted: true, Reason: reason}
	case last:
		p.Metrics.job("dead")
		log.Error("the mailing failed", "error", reason)
		return &queue.Dead{Reason: reason}
	}
	p.Metrics.job("failed")
	log.Error("the mailing's job failed", "error", reason)
	return &queue.RetryLater{Reason: reason, Uncounted: store.IsOutage(cause)}
}

// locked answers when another transaction keeps the mailing's row locked: this job makes room
// for other mailings.
func (p *Processor) locked(log *slog.Logger, err error) error {
	p.Metrics.job("lost")
	log.Warn("another transaction has locked the mailing, its job comes again", "error", email.MaskText(err.Error()))
	return &queue.RetryLater{Delay: p.live(), Uncounted: true, Reason: "another transaction has locked the mailing"}
}

// unwritten answers when nothing could be written. The mailing keeps its heartbeat, and
// is taken over when that is old enough.
func (p *Processor) unwritten(log *slog.Logger, err error) error {
	p.Metrics.job("failed")
	if !store.IsOutage(err) {
		return err
	}
	reason := email.MaskText(err.Error())
	log.Error("the mailing's job cannot be written down", "error", reason)
	return &queue.RetryLater{Reason: reason, Uncounted: true}
}

// bury writes the dead letter of a message that names no job.
func (p *Processor) bury(ctx context.Context, task queue.Task, code string, cause error) error {
	err := p.Store.BuryTask(ctx, store.DeadTask{
		Target: email.TargetMailing, Reason: code, Detail: cause.Error(), Payload: task.Payload, TaskID: task.ID,
	})
	if err != nil {
		return p.unwritten(p.Log.With(telemetry.OutboxID, task.ID), err)
	}
	p.Metrics.job("buried")
	p.Log.Error("task buried", telemetry.OutboxID, task.ID, "code", code, "cause", email.MaskText(cause.Error()))
	return nil
}
