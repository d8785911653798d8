package rabbitmq

import (
	"context"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// tap fills batches from the deliveries of one channel, for one taker after the other,
// so that two of them do not share what would make one full batch.
type tap struct {
	deliveries <-chan amqp.Delivery
	pulse      *pulse
	turn       chan struct{}
	size       int
	wait       time.Duration
}

// next waits for a first delivery, and then for more until the batch is full or the wait
// is over. It returns nothing when ctx or the channel ends; what was taken until then
// goes back to the queue with the channel.
func (t *tap) next(ctx context.Context) []amqp.Delivery {
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
	t.pulse.begin()
	batch = t.fill(ctx, batch)
	if batch == nil {
		t.pulse.end()
	}
	return batch
}

// fill adds to a batch that has its first delivery.
func (t *tap) fill(ctx context.Context, batch []amqp.Delivery) []amqp.Delivery {
	timer := time.NewTimer(t.wait)
	defer timer.Stop()
	for late := false; len(batch) < t.size && !late; {
		select {
		case d, open := <-t.deliveries:
			if !open {
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
		return nil // too late to begin it
	}
	return batch
}
