package dispatcher

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store/dispatch"
	"email-gateway/shared/telemetry"
)

const (
	// probePoll is how often the circuit breaker is read: one row, by primary key.
	probePoll = 500 * time.Millisecond
	// probePause is the time between two probes of all dispatchers together: it bounds the delay until a recovery of the
	// provider is noticed, and the number of calls during an outage.
	probePause = 5 * time.Second
)

// probeStore chooses probes.
type probeStore interface {
	PickProbe(ctx context.Context, queues []string, pause time.Duration, early bool) (picked dispatch.Probe, found bool, err error)
	SkipProbe(ctx context.Context, id uuid.UUID) error
}

// prober enqueues single emails while the circuit breaker of the provider is open, when the feeders find no live lanes.
type prober struct {
	store   probeStore
	emails  *emails
	log     *slog.Logger
	feeders map[string]*feeder // by queue
	earlyAt time.Time          // last round that searched retries and found no probe
	resume  time.Time          // end of the pause after a failure
}

// runOnce chooses a probe and enqueues it. The choice is committed first, since otherwise the worker would drop the task. If
// the task is lost, another probe follows after the pause.
//
// One dispatcher may be cut off from the broker while others are not, and must not use up their probes: it chooses none on a
// queue that it cannot measure. If it cannot publish the probe nevertheless, another dispatcher may choose one at once, and this
// one pauses.
func (p *prober) runOnce(ctx context.Context) (more bool, err error) {
	queues := p.reachable()
	if len(queues) == 0 || time.Now().Before(p.resume) {
		return false, nil
	}
	// PickProbe reads up to 100 emails of each lane when it also searches retries. After such a round has found no
	// probe, retries are left out for probePause.
	early := time.Since(p.earlyAt) >= probePause
	probe, found, err := p.store.PickProbe(ctx, queues, probePause, early)
	if early && !found {
		p.earlyAt = time.Now()
	}
	if err != nil || !found {
		return false, nil // the feeders report the outage
	}
	if err := p.enqueue(ctx, p.feeders[probe.Queue], probe.ID); err != nil && ctx.Err() == nil {
		p.log.Warn("probe not enqueued", telemetry.OutboxID, probe.ID, "queue", probe.Queue, "error", email.MaskText(err.Error()))
	}
	return false, nil
}

// reachable returns the queues that this dispatcher could measure last.
func (p *prober) reachable() (queues []string) {
	for _, name := range email.Queues() {
		if f := p.feeders[name]; f != nil && f.reachable.Load() {
			queues = append(queues, name)
		}
	}
	return queues
}

// enqueue publishes the probe without a reservation, since it is only one task.
func (p *prober) enqueue(ctx context.Context, f *feeder, id uuid.UUID) error {
	committing, end := withExtraTime(ctx, stopTime)
	defer end()
	start := time.Now()
	taken, err := p.emails.takeProbe(committing, id)
	if err != nil {
		return err
	}
	if len(taken.Rows) == 0 { // another transaction has locked or changed the row: the next round chooses another probe
		return p.store.SkipProbe(committing, id)
	}
	released, err := f.publishBatch(ctx, committing, p.emails, taken, len(taken.Rows), start)
	if err != nil {
		p.resume = time.Now().Add(probePause)
		if released > 0 { // without a task
			err = errors.Join(err, p.store.SkipProbe(committing, id))
		}
	}
	return errors.Join(err, p.emails.idle(committing))
}
