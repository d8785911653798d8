package dispatcher

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/telemetry"
)

const (
	// probePoll is how often the circuit breaker is read: one row, by primary key.
	probePoll = 500 * time.Millisecond
	// probePause is the time between two probes of all dispatchers together: it bounds the delay until a recovery of the
	// provider is noticed, and the number of calls during an outage.
	probePause = 5 * time.Second
)

// prober enqueues single emails while the circuit breaker of the provider is open, when the feeders find no live lanes.
type prober struct {
	outbox  Outbox
	emails  *emails
	log     *slog.Logger
	feeders map[string]*feeder // by queue
	earlyAt time.Time          // last round that searched retries and found no probe
}

// runOnce chooses a probe and enqueues it. The choice is committed first, since otherwise the worker would drop the task. If
// the probe is not enqueued or its task is lost, another one follows after the pause.
func (p *prober) runOnce(ctx context.Context) (more bool, err error) {
	// Searching retries reads up to 100 emails of each lane, so it waits for a pause after a round
	// without a probe.
	early := time.Since(p.earlyAt) >= probePause
	probe, found, err := p.outbox.PickProbe(ctx, probePause, early)
	if early && !found {
		p.earlyAt = time.Now()
	}
	if err != nil || !found {
		return false, nil // the feeders report the outage
	}
	f, known := p.feeders[probe.Queue]
	if !known {
		p.log.Error("probe on a queue without a feeder", "queue", probe.Queue)
		return false, nil
	}
	if err := p.enqueue(ctx, f, probe.ID); err != nil && ctx.Err() == nil {
		p.log.Warn("probe not enqueued", telemetry.OutboxID, probe.ID, "queue", probe.Queue, "error", email.MaskText(err.Error()))
	}
	return false, nil
}

// enqueue publishes the probe without a reservation, since it is only one task.
func (p *prober) enqueue(ctx context.Context, f *feeder, id uuid.UUID) error {
	committing, end := outlast(ctx, stopTime)
	defer end()
	begun := time.Now()
	taken, err := p.emails.takeProbe(committing, id)
	if err != nil {
		return err
	}
	if len(taken.Rows) == 0 { // another transaction has locked or changed the row: the next round chooses another probe
		return p.outbox.SkipProbe(committing, id)
	}
	_, err = f.publishBatch(ctx, committing, p.emails, taken, len(taken.Rows), begun)
	return errors.Join(err, p.emails.idle(committing))
}
