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
	// probePoll is how often the provider's gate is looked at: one row, by primary key.
	probePoll = 500 * time.Millisecond
	// probePause is the time from one probe to the next, over all dispatchers together:
	// a provider that is back is noticed within it, and one that is not is left in peace.
	probePause = 5 * time.Second
)

// prober puts one email on its queue now and then while the gate before the provider is
// shut. The feeders find no lane live then.
type prober struct {
	outbox  Outbox
	emails  *emails
	log     *slog.Logger
	feeders map[string]*feeder // by queue
	earlyAt time.Time          // of the last round that looked at retries and found no probe
}

// runOnce chooses a probe and enqueues it. The choice is committed first: the worker that
// gets the task would not let it through otherwise. Whatever happens in between, the next
// probe comes after the pause.
func (p *prober) runOnce(ctx context.Context) (more bool, err error) {
	// Looking at retries reads up to 100 emails of each lane, so it waits for a pause after a round without a probe.
	early := time.Since(p.earlyAt) >= probePause
	probe, found, err := p.outbox.PickProbe(ctx, probePause, early)
	if early && !found {
		p.earlyAt = time.Now()
	}
	if err != nil || !found {
		return false, nil // the feeders report a database that does not answer
	}
	f, known := p.feeders[probe.Queue]
	if !known {
		p.log.Error("probe on a queue that no feeder fills", "queue", probe.Queue)
		return false, nil
	}
	if err := p.enqueue(ctx, f, probe.ID); err != nil && ctx.Err() == nil {
		p.log.Warn("probe not enqueued", telemetry.OutboxID, probe.ID, "queue", probe.Queue, "error", email.MaskText(err.Error()))
	}
	return false, nil
}

// enqueue publishes the probe outside of the queue's window: it is one task.
func (p *prober) enqueue(ctx context.Context, f *feeder, id uuid.UUID) error {
	committing, end := outlast(ctx, stopTime)
	defer end()
	begun := time.Now()
	taken, err := p.emails.takeProbe(committing, id)
	if err != nil {
		return err
	}
	if len(taken.Rows) == 0 { // somebody has locked or moved its row since it was chosen: the next round chooses another
		return p.outbox.SkipProbe(committing, id)
	}
	_, err = f.publishBatch(ctx, committing, p.emails, taken, len(taken.Rows), begun)
	return errors.Join(err, p.emails.idle(committing))
}
