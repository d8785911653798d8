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
	var (
		batch []amqp.Delivery
		late  <-chan time.Time
	)
	for len(batch) < t.size {
		select {
		case d, open := <-t.deliveries:
			if !open {
				return nil
			}
			if batch == nil {
				timer := time.NewTimer(t.wait)
				defer timer.Stop()
				late = timer.C
			}
			t.pulse.delivered.Add(1)
			batch = append(batch, d)
		case <-late:
			return t.hand(ctx, batch)
		case <-ctx.Done():
			return nil
		}
	}
	return t.hand(ctx, batch)
}

// hand gives a batch out, unless it is too late to begin it.
func (t *tap) hand(ctx context.Context, batch []amqp.Delivery) []amqp.Delivery {
	if ctx.Err() != nil {
		return nil
	}
	t.pulse.inWork.Add(1)
	return batch
}
