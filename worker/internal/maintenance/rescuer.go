package maintenance

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"email-gateway/shared/email"
	"email-gateway/shared/service"
	"email-gateway/shared/store/dispatch"
	"email-gateway/shared/store/outbox"
	"email-gateway/worker/internal/queue"
)

const (
	// rescueLooks is how often the rescuer looks for lost tasks within RESCUE_AFTER. It looks up emails on the queue that have
	// been ENQUEUED for half of that time, so that an email without a task is enqueued again after 0.7 of it and a round of the
	// dispatcher.
	rescueLooks = 5
	// maxRescueInterval is how long the end of a lease may go unnoticed.
	maxRescueInterval = 5 * time.Second
	// leaseGrace is additional time for a worker that is recording its result.
	leaseGrace = 5 * time.Second
	// rescueBatch bounds a round of ended leases.
	rescueBatch = 500
	// rescuePage is how many ENQUEUED emails are read at once. One page has nearly all windows, because Postgres reads all of
	// these emails for each page.
	rescuePage = 50_000
	// rescueChunk is how many of them are read again and then looked up on the queue.
	rescueChunk = 500
	// rescuers is the number of concurrent transitions or lookups.
	rescuers = 64
	// strayInterval is how often strays are removed from the lists of the queues. A stray only makes the window smaller by one.
	strayInterval = 30 * time.Second
	// batchAge is how long unconfirmed batches and notes about dropped tasks are kept. Their emails
	// are rescued long before.
	batchAge = 24 * time.Hour
)

// RescueStore has the database operations of the rescuer.
type RescueStore interface {
	// AbandonedClaims and LongEnqueued read emails with a deadline from since on, and return the earliest deadline of
	// these. LongEnqueued also returns for how long no email can be long enqueued.
	AbandonedClaims(ctx context.Context, grace time.Duration, limit int, since time.Time) (found []dispatch.UnknownOutcome, earliest time.Time, err error)
	LongEnqueued(ctx context.Context, age time.Duration, after uuid.UUID, limit int, since time.Time) (dispatch.Enqueued, error)
	StillEnqueued(ctx context.Context, ids []uuid.UUID, age time.Duration) ([]uuid.UUID, error)
	// ReturnLost returns emails to the dispatchers and wakes the dispatchers.
	ReturnLost(ctx context.Context, ids []uuid.UUID, age time.Duration) (dispatch.Returned, error)
	CleanBatches(ctx context.Context, age time.Duration) error
}

// Tasks has the queue operations of the rescuer.
type Tasks interface {
	// Ready lists the ids of the tasks that wait for a worker.
	Ready(ctx context.Context, queue string) ([]string, error)
	// Evict looks up the task of an id, and removes it if no worker will ever receive it.
	Evict(ctx context.Context, queueName, id string) (queue.Found, error)
	// RemoveStrays removes list entries that use up room on the queue and that no worker can run.
	RemoveStrays(ctx context.Context, queue string) (int, error)
	// Repairs returns the number of repairs by action since the last call.
	Repairs() map[string]int
}

// Rescuer recovers emails after crashes: those claimed by a worker that has died, and those whose task the queue has lost. It
// also removes queue entries that no worker will ever take. It reads only emails in flight and those on the queues, so its cost
// does not grow with the number of sent emails, except in the scans without a bound: see scanBound.
type Rescuer struct {
	*service.Loop
	params  RescuerParams
	rescued *prometheus.CounterVec
	strays  time.Time // when strays are removed the next time

	claimed, enqueued scanBound
	noneLong          time.Time // until then no email can be long enqueued
}

// RescuerParams configure a Rescuer.
type RescuerParams struct {
	Log      *slog.Logger
	Store    RescueStore
	Outcomes Outcomes
	Queue    Tasks
	Registry prometheus.Registerer
	Actions  *Actions
	// After is the maximum time that an email is without its task.
	After time.Duration
}

// Reasons for a rescue.
const (
	reasonLease       = "lease_ended" // the worker died or does not respond
	reasonLeftover    = "leftover"    // the task was that of a worker that died
	reasonLost        = "lost"        // the queue lost the task
	reasonUnpublished = "unpublished" // the dispatcher died before it published the task
	reasonDropped     = "dropped"     // a worker dropped the task because another transaction had locked the email
)

// NewRescuer makes a rescuer that is not running yet.
func NewRescuer(p RescuerParams) *Rescuer {
	r := &Rescuer{params: p, rescued: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "outbox_rescued_total", Help: "Emails recovered after they lost their worker or their task, by the status they were in and the reason.",
	}, []string{"status", "reason"})}
	for reason, status := range rescuedFrom {
		r.rescued.WithLabelValues(string(status), reason)
	}
	p.Registry.MustRegister(r.rescued)
	interval := min(p.After/rescueLooks, maxRescueInterval)
	r.Loop = service.NewLoop(service.LoopParams{Log: p.Log, Interval: interval, RunOnce: r.runOnce, ErrorDelay: maxRescueInterval})
	return r
}

// rescuedFrom maps each reason to the status in which the emails were found.
var rescuedFrom = map[string]email.Status{
	reasonLease: email.Processing, reasonLeftover: email.Enqueued, reasonLost: email.Enqueued, reasonUnpublished: email.Enqueued, reasonDropped: email.Enqueued,
}

func (r *Rescuer) runOnce(ctx context.Context) (more bool, err error) {
	more, claims := r.rescueClaims(ctx)
	err = errors.Join(claims, r.removeStrays(ctx), r.rescueTasks(ctx))
	r.logRepairs(ctx)
	return more, err
}

// removeStrays removes strays from the queues, and old batches, every strayInterval.
func (r *Rescuer) removeStrays(ctx context.Context) error {
	if time.Now().Before(r.strays) {
		return nil
	}
	r.strays = time.Now().Add(strayInterval)
	errs := []error{r.params.Store.CleanBatches(ctx, batchAge)}
	for _, name := range email.Queues() {
		_, err := r.params.Queue.RemoveStrays(ctx, name) // Repairs returns the number
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// logRepairs counts and logs the repairs of the queues since the last round.
func (r *Rescuer) logRepairs(ctx context.Context) {
	repairs := r.params.Queue.Repairs()
	if len(repairs) == 0 {
		return
	}
	attrs := make([]slog.Attr, 0, len(repairs))
	for _, action := range slices.Sorted(maps.Keys(repairs)) {
		r.params.Actions.Count(action, repairs[action])
		attrs = append(attrs, slog.Int(action, repairs[action]))
	}
	r.params.Log.LogAttrs(ctx, slog.LevelWarn, "queues repaired", slog.Any("actions", slog.GroupValue(attrs...)))
}

// rescueClaims ends attempts whose worker has not recorded a result.
func (r *Rescuer) rescueClaims(ctx context.Context) (more bool, err error) {
	var abandoned []dispatch.UnknownOutcome
	err = r.claimed.scan(func(since time.Time) (earliest time.Time, err error) {
		abandoned, earliest, err = r.params.Store.AbandonedClaims(ctx, leaseGrace, rescueBatch, since)
		return earliest, err
	})
	if err != nil || len(abandoned) == 0 {
		return false, err
	}
	n, known, err := r.params.Outcomes.end(ctx, abandoned, outbox.GuardAbandoned)
	if known > 0 {
		r.params.Log.Warn("recorded results of attempts that their workers could not record", "count", known)
	}
	r.count(reasonLease, n)
	return err == nil && n > 0 && len(abandoned) == rescueBatch, err
}

// rescueTasks looks up the task of every email that has been ENQUEUED for long. Emails without a task return to the
// dispatcher. The claim of an email prevents a second attempt by another task, so a mistake here costs a task and does
// not cause a duplicate email. It does nothing while no email can be ENQUEUED for long: a search reads the fresh ones
// too, which are many during a mailing.
func (r *Rescuer) rescueTasks(ctx context.Context) error {
	if time.Now().Before(r.noneLong) {
		return nil
	}
	lost, leftover, err := r.returnTasks(ctx)
	r.count(reasonLost, lost.Lost)
	r.count(reasonUnpublished, lost.Unpublished)
	r.count(reasonDropped, lost.Dropped)
	r.count(reasonLeftover, leftover.All())
	return err
}

// returnTasks returns emails without a task to the dispatcher: those that had none (lost), and those whose task no worker would
// have received (leftover).
func (r *Rescuer) returnTasks(ctx context.Context) (lost, leftover dispatch.Returned, err error) {
	after, ready, age := uuid.Nil, make(readyTasks), r.params.After/2
	var (
		unanswered error
		since      time.Time
		page       dispatch.Enqueued
	)
	err = r.enqueued.scan(func(from time.Time) (earliest time.Time, err error) {
		since = from
		start := time.Now()
		page, err = r.params.Store.LongEnqueued(ctx, age, after, rescuePage, since)
		if err == nil && since.IsZero() { // with a bound it says nothing about emails before that
			r.noneLong = start.Add(page.DueIn)
		}
		return page.Earliest, err
	})
	for {
		long := page.Long
		if err != nil || len(long) == 0 {
			return lost, leftover, errors.Join(unanswered, err)
		}
		after = long[len(long)-1].ID
		full := len(long)
		rest, listing := ready.without(ctx, r.params.Queue, long)
		unanswered = errors.Join(unanswered, listing)
		for chunk := range slices.Chunk(rest, rescueChunk) {
			chunk, err := r.stillEnqueued(ctx, chunk, age)
			if err != nil {
				return lost, leftover, errors.Join(unanswered, err)
			}
			missing, left, evicting := r.evict(ctx, chunk)
			unanswered = errors.Join(unanswered, evicting)
			err = errors.Join(r.returnLost(ctx, missing, age, &lost), r.returnLost(ctx, left, age, &leftover))
			if err != nil {
				return lost, leftover, errors.Join(unanswered, err)
			}
		}
		if full < rescuePage {
			return lost, leftover, unanswered
		}
		page, err = r.params.Store.LongEnqueued(ctx, age, after, rescuePage, since)
	}
}

// stillEnqueued returns those of the emails that are still ENQUEUED. Workers claim hundreds of tasks of a busy queue while it
// is listed, and each lookup scans the queue's list, while Redis serves no other client.
func (r *Rescuer) stillEnqueued(ctx context.Context, chunk []dispatch.LongEnqueued, age time.Duration) ([]dispatch.LongEnqueued, error) {
	ids := make([]uuid.UUID, len(chunk))
	for i, e := range chunk {
		ids[i] = e.ID
	}
	still, err := r.params.Store.StillEnqueued(ctx, ids, age)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(chunk, func(e dispatch.LongEnqueued) bool { return !slices.Contains(still, e.ID) }), nil
}

// returnLost returns the emails to the dispatcher, and adds their number to sum.
func (r *Rescuer) returnLost(ctx context.Context, ids []uuid.UUID, age time.Duration, sum *dispatch.Returned) error {
	if len(ids) == 0 {
		return nil
	}
	n, err := r.params.Store.ReturnLost(ctx, ids, age)
	sum.Lost, sum.Unpublished, sum.Dropped = sum.Lost+n.Lost, sum.Unpublished+n.Unpublished, sum.Dropped+n.Dropped
	return err
}

func (r *Rescuer) evict(ctx context.Context, long []dispatch.LongEnqueued) (missing, leftover []uuid.UUID, err error) {
	found := make([]queue.Found, len(long))
	var asking errgroup.Group
	asking.SetLimit(rescuers)
	for i, e := range long {
		asking.Go(func() (err error) {
			found[i], err = r.params.Queue.Evict(ctx, e.Queue, e.ID.String())
			return err
		})
	}
	err = asking.Wait()
	for i, e := range long {
		switch found[i] {
		case queue.Missing:
			missing = append(missing, e.ID)
		case queue.Leftover:
			leftover = append(leftover, e.ID)
		case queue.Kept:
		}
	}
	return missing, leftover, err
}

func (r *Rescuer) count(reason string, n int) {
	if n == 0 {
		return
	}
	status := rescuedFrom[reason]
	r.rescued.WithLabelValues(string(status), reason).Add(float64(n))
	r.params.Log.Warn("emails rescued", "leftIn", status, "reason", reason, "count", n)
}
