package rabbitmq

import (
	"context"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// batcher builds batches from the deliveries of one channel, one batch at a time, so that two goroutines do not share the tasks
// of one full batch.
type batcher struct {
	deliveries <-chan amqp.Delivery
	activity   *activity
	turn       chan struct{}
	size       int
	wait       time.Duration
	// cancelled means that the consumer has ended the deliveries; the channel is still open.
	cancelled atomic.Bool
}

// next waits for a first delivery, and then for more until the batch is full or the wait is over. It returns nil when ctx or
// the deliveries end. Those received until then are a last batch if the consumer has ended the deliveries; otherwise they
// return to the queue with the channel.
func (t *batcher) next(ctx context.Context) []amqp.Delivery {
	select {
	case t.turn <- struct{}{}:
		defer func() { <-t.turn }()
	case <-ctx.Done():
		return nil
	}
	var batch []amqp.Delivery
	select {
	case d, open := <-t.deliveries:
		if !open {
			return nil
		}
		batch = append(batch, d)
	case <-ctx.Done():
		return nil
	}
	t.activity.begin()
	batch = t.fill(ctx, batch)
	if batch == nil {
		t.activity.end()
	}
	return batch
}

// fill adds deliveries to a batch that has its first one.
func (t *batcher) fill(ctx context.Context, batch []amqp.Delivery) []amqp.Delivery {
	timer := time.NewTimer(t.wait)
	defer timer.Stop()
	for late := false; len(batch) < t.size && !late; {
		select {
		case d, open := <-t.deliveries:
			switch {
			case !open && t.cancelled.Load():
				return batch
			case !open:
				return nil
			}
			batch = append(batch, d)
		case <-timer.C:
			late = true
		case <-ctx.Done():
			return nil
		}
	}
	if ctx.Err() != nil {
		return nil // too late to start it
	}
	return batch
}
