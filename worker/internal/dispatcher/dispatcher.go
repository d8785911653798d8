// Package dispatcher moves the rows that are due from the outbox to their queues:
// emails to the queue engine, bulk jobs to the message broker.
// The program of the same name runs it, any number of times at once: rows that one of them
// takes are not due for the others, and a queue has at most one task of an id.
//
// A batch is committed first and published afterwards, so no transaction is open while the
// dispatcher waits for a broker. What a crash in between leaves behind is found by the
// rescuer (emails) or when its lease ends (jobs).
//
// A queue holds no more than a window of tasks, and lanes (a tenant's emails, or a
// mailing's) take turns at it. So one tenant's million emails neither delay
// another's single one by more than the window, nor fill the broker.
package dispatcher

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/shared/email"
	"email-gateway/shared/service"
	"email-gateway/shared/store"
	"email-gateway/shared/telemetry"
	"email-gateway/worker/internal/queue"
)

// Outbox is what the dispatcher asks of the database.
type Outbox interface {
	WaitingLanes(ctx context.Context) (store.WaitingLanes, error)
	ProbeLanes(ctx context.Context, lanes []store.LaneProbe, made store.NewRows) (store.WaitingLanes, error)
	TakeDue(ctx context.Context, slot store.Slot, turns []store.LaneTurn) (store.Batch, error)
	ForgetBatch(ctx context.Context, slot store.Slot) error
	LeaseJobs(ctx context.Context, turns []store.LaneTurn) (store.Batch, error)
	MarkPublished(ctx context.Context, ids []uuid.UUID) error
	Release(ctx context.Context, takenAt time.Time, rows []store.Release) (left int, err error)
	// StillTaken counts emails of a batch that no worker has finished with.
	StillTaken(ctx context.Context, takenAt time.Time, ids []uuid.UUID) (int, error)
	// Wake makes all dispatchers list all lanes.
	Wake(ctx context.Context) error
	PickProbe(ctx context.Context, pause time.Duration, early bool) (picked store.Probe, found bool, err error)
	TakeProbe(ctx context.Context, slot store.Slot, id uuid.UUID) (store.Batch, error)
	SkipProbe(ctx context.Context, id uuid.UUID) error
	CountAll(ctx context.Context) (store.Backlog, error)
	CountExpiring(ctx context.Context, within time.Duration) (store.ExpiringLetters, error)
	OldestDue(ctx context.Context) ([]store.LaneAge, error)
	OldestErasure(ctx context.Context) (seconds float64, err error)
	ProcessStatuses(ctx context.Context) ([]store.ProcessStatus, error)
}

// Ages is how long the oldest task has stood on a queue without being taken, 0 if none
// stands there.
type Ages interface {
	Oldest(ctx context.Context, queue string) (time.Duration, error)
}

// Params make a Dispatcher.
type Params struct {
	Log    *slog.Logger
	Outbox Outbox
	Queue  queue.Publisher // of emails
	Bulk   queue.Publisher // of mailing jobs and recipients; nil = this installation has no broker for them
	// Ages tells how old the tasks on the queues of emails are; nil = nobody does.
	Ages     Ages
	Registry prometheus.Registerer

	// Wakes bring the next round forward; nil if nothing does.
	Wakes Wakes
	// PollInterval is how often an idle dispatcher looks by itself.
	PollInterval time.Duration
	// ListInterval is how often all lanes are listed; 0 = every 30 s.
	ListInterval time.Duration
	// Concurrency and SendRate size the window while no worker tells its own.
	Concurrency int
	SendRate    float64
	// MaxAttempts bounds the attempt that a payload names.
	MaxAttempts int
	// Tracer makes a span of each task's way to its queue.
	Tracer telemetry.Tracer
}

// Dispatcher is a service.Service: a feeder for each queue, two loops that measure what
// the feeders go by, one that lists all lanes, and one that sends probes through a shut gate. Each feeder is a loop of its own, so that a broker
// that is away delays nothing but its own queues.
type Dispatcher struct {
	parts   []service.Service
	feeders []*feeder
	wakes   []chan struct{} // one for each feeder
	lanes   *lanes
	cancel  context.CancelFunc
}

// New makes a Dispatcher.
func New(p Params) *Dispatcher {
	measured := newMetrics(p.Registry)
	size := newWindow(p.Outbox, p.Concurrency, p.SendRate, measured.alive)
	waiting := newBacklog(p)
	d := &Dispatcher{
		lanes: newLanes(p.Outbox, p.Wakes, p.ListInterval),
		parts: []service.Service{
			service.NewLoop(service.LoopParams{Log: p.Log, Interval: windowInterval, RunOnce: size.measure}),
			service.NewLoop(service.LoopParams{Log: p.Log, Interval: backlogInterval, RunOnce: waiting.measure}),
		},
	}
	emails, parts := &outage{log: p.Log, failing: make(map[string]bool)}, newShares()
	probes := prober{outbox: p.Outbox, emails: newEmails(p.Outbox), log: p.Log, feeders: make(map[string]*feeder)}
	for _, name := range email.Queues() {
		f := &feeder{name: name, queue: p.Queue, payload: sendJob(p.MaxAttempts), outage: emails, metrics: measured.of(name)}
		f.load, f.saw = &load{}, func(tasks int) { parts.saw(name, tasks, f.load.room(size.Size())) }
		f.window = func() int { return f.load.room(parts.of(name, size.Size())) }
		f.step = func(tasks int) int { return parts.step(name, tasks, f.load.room(size.Size())) }
		for i := range f.sources {
			f.sources[i] = newEmails(p.Outbox)
		}
		d.feed(p, f)
		probes.feeders[name] = f
	}
	d.parts = append(d.parts,
		service.NewLoop(service.LoopParams{Log: p.Log, Interval: d.lanes.interval / listParts, ErrorDelay: d.lanes.interval / listParts, RunOnce: d.lanes.list}),
		service.NewLoop(service.LoopParams{Log: p.Log, Interval: probePoll, RunOnce: probes.runOnce}))
	if p.Bulk != nil {
		bulk := &outage{log: p.Log, failing: make(map[string]bool)}
		for _, name := range email.BulkQueues() {
			f := &feeder{name: name, queue: p.Bulk, payload: bulkJob(name), window: func() int { return bulkWindow(name) }, outage: bulk, metrics: measured.of(name)}
			for i := range f.sources {
				f.sources[i] = &jobs{outbox: p.Outbox}
			}
			d.feed(p, f)
		}
	}
	return d
}

// feed adds a feeder's loop.
func (d *Dispatcher) feed(p Params, f *feeder) {
	f.lanes, f.log, f.tracer = d.lanes, p.Log, p.Tracer
	d.feeders = append(d.feeders, f)
	wake := make(chan struct{}, 1)
	d.wakes = append(d.wakes, wake)
	d.parts = append(d.parts, service.NewLoop(service.LoopParams{
		Log: p.Log, Interval: p.PollInterval, Wake: wake, RunOnce: f.runOnce,
	}))
}

// Start begins to dispatch.
func (d *Dispatcher) Start(ctx context.Context, failed func(error)) error {
	for _, part := range d.parts {
		if err := part.Start(ctx, failed); err != nil {
			return err
		}
	}
	ctx, d.cancel = context.WithCancel(context.WithoutCancel(ctx))
	go d.passOn(ctx)
	return nil
}

// Stop ends the rounds under way: what they had not published is released.
func (d *Dispatcher) Stop(ctx context.Context) error {
	d.cancel()
	var errs []error
	for _, part := range d.parts {
		errs = append(errs, part.Stop(ctx))
	}
	for _, f := range d.feeders {
		errs = append(errs, f.confirm(ctx))
	}
	return errors.Join(errs...)
}

// passOn wakes every feeder, since a wake-up does not say which queue it is about.
func (d *Dispatcher) passOn(ctx context.Context) {
	var woken <-chan struct{}
	if d.lanes.wakes != nil {
		woken = d.lanes.wakes.Woken()
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-woken:
			d.lanes.outdate()
			for _, wake := range d.wakes {
				select {
				case wake <- struct{}{}:
				default: // it is awake, or about to be
				}
			}
		}
	}
}
