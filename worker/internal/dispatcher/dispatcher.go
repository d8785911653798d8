// Package dispatcher moves due rows from the outbox to their queues: emails to asynq (Redis), bulk jobs to RabbitMQ.
// Any number of dispatcher processes may run: each row is taken by one of them, and a queue holds at most one task per
// id.
//
// A batch is committed first and published afterwards, so no transaction is open while the dispatcher waits for a broker. If
// the dispatcher crashes in between, the rescuer finds the emails, and jobs become due again when their lease ends.
//
// A queue holds at most a window of tasks, which the lanes (a tenant's emails, or a mailing's) share round-robin. One tenant's
// million emails therefore delay another tenant's single email by at most the window, and do not fill the broker.
package dispatcher

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/shared/email"
	"email-gateway/shared/service"
	"email-gateway/shared/telemetry"
	"email-gateway/worker/internal/queue"
)

// Store has the database operations of the dispatcher. *store.Store implements it.
type Store interface {
	laneStore
	emailStore
	jobStore
	batchStore
	probeStore
	backlogStore
	statusStore
}

// Ages returns the age of the oldest ready task of a queue, 0 if there is none.
type Ages interface {
	Oldest(ctx context.Context, queue string) (time.Duration, error)
}

// Params configure a Dispatcher.
type Params struct {
	Log   *slog.Logger
	Store Store
	Queue queue.Publisher // for emails
	Bulk  queue.Publisher // for mailing jobs and recipients; nil = no broker is configured
	// Ages measures the age of the tasks on the email queues; nil = not measured.
	Ages     Ages
	Registry prometheus.Registerer

	// Wakes trigger a round at once; nil = polling only.
	Wakes Wakes
	// PollInterval is how often an idle dispatcher polls.
	PollInterval time.Duration
	// ListInterval is how often all lanes are listed; 0 = every 30 s.
	ListInterval time.Duration
	// SendRate sizes the window until a worker reports the account's.
	SendRate float64
	// MaxAttempts is the highest attempt number in a payload.
	MaxAttempts int
	// Tracer creates a span for each publish.
	Tracer telemetry.Tracer
}

// Dispatcher is a service.Service. It runs a feeder for each queue, two loops that measure, one that lists all lanes, and one
// that sends probes while the circuit breaker is open. Each feeder has its own loop, so that a broker outage delays only the
// queues of that broker.
type Dispatcher struct {
	parts   []service.Service
	feeders []*feeder
	wakes   []chan struct{} // one per feeder
	lanes   *lanes
	cancel  context.CancelFunc
}

// New makes a Dispatcher.
func New(p Params) *Dispatcher {
	measured := newMetrics(p.Registry)
	all := newWindow(p.Store, p.SendRate, measured.alive)
	d := &Dispatcher{
		lanes: newLanes(p.Store, p.Wakes, p.ListInterval),
		parts: []service.Service{
			service.NewLoop(service.LoopParams{Log: p.Log, Interval: windowInterval, RunOnce: all.measure}),
			service.NewLoop(service.LoopParams{Log: p.Log, Interval: backlogInterval, RunOnce: newBacklog(p).measure}),
		},
	}
	outage, shared := newOutage(p.Log), newShares()
	probes := prober{store: p.Store, emails: newEmails(p.Store), log: p.Log, feeders: make(map[string]*feeder)}
	for _, name := range email.Queues() {
		f := &feeder{name: name, size: emailSizer{&load{}, name, shared, all}, outage: outage, metrics: measured.forQueue(name)}
		f.publisher = publisher{name, p.Queue, sendJob(p.MaxAttempts), f.metrics, p.Tracer}
		d.feed(p, f, func() source { return newEmails(p.Store) })
		probes.feeders[name] = f
	}
	d.parts = append(d.parts,
		service.NewLoop(service.LoopParams{Log: p.Log, Interval: d.lanes.interval / listParts, Wake: d.lanes.requests, RunOnce: d.lanes.list}),
		service.NewLoop(service.LoopParams{Log: p.Log, Interval: probePoll, RunOnce: probes.runOnce}))
	if p.Bulk != nil {
		outage := newOutage(p.Log)
		for _, name := range email.BulkQueues() {
			f := &feeder{name: name, size: newBulkSizer(name), outage: outage, metrics: measured.forQueue(name)}
			f.publisher = publisher{name, p.Bulk, bulkJob(name), f.metrics, p.Tracer}
			d.feed(p, f, func() source { return &jobs{store: p.Store} })
		}
	}
	return d
}

// feed adds a feeder with its sources, and its loop.
func (d *Dispatcher) feed(p Params, f *feeder, newSource func() source) {
	f.log, f.store = p.Log, p.Store
	f.live = liveLanes{queue: f.name, lanes: d.lanes}
	for i := range f.sources {
		f.sources[i] = newSource()
	}
	d.feeders = append(d.feeders, f)
	wake := make(chan struct{}, 1)
	d.wakes = append(d.wakes, wake)
	d.parts = append(d.parts, service.NewLoop(service.LoopParams{
		Log: p.Log, Interval: p.PollInterval, Wake: wake, RunOnce: f.runOnce,
	}))
}

// Start starts all loops.
func (d *Dispatcher) Start(ctx context.Context, failed func(error)) error {
	for _, part := range d.parts {
		if err := part.Start(ctx, failed); err != nil {
			return err
		}
	}
	ctx, d.cancel = context.WithCancel(context.WithoutCancel(ctx))
	go d.forwardWakes(ctx)
	return nil
}

// Stop ends the running rounds and releases the rows that they have not published.
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

// forwardWakes wakes every feeder, since a wake-up does not name a queue.
func (d *Dispatcher) forwardWakes(ctx context.Context) {
	var woken <-chan struct{}
	if d.lanes.wakes != nil {
		woken = d.lanes.wakes.Woken()
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.lanes.becameLive: // a listing has found live lanes
		case <-woken:
			d.lanes.invalidate()
		}
		for _, wake := range d.wakes {
			signal(wake)
		}
	}
}
