package rabbitmq

import (
	"context"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"email-gateway/shared/service"
)

// renewal is how long a consumer gets nothing before it asks anew.
const renewal = 30 * time.Second

// pulse is what a consumer on one channel has to do.
type pulse struct {
	begun   atomic.Int64 // batches ever
	inHand  atomic.Int64 // batches being filled or worked on
	renewed atomic.Bool
}

func (p *pulse) begin() { p.begun.Add(1); p.inHand.Add(1) }
func (p *pulse) end()   { p.inHand.Add(-1) }

// watchdog closes the channel of a consumer that is idle for long, so that it takes
// another one. When a replicated queue is deleted and somebody declares it again at once,
// RabbitMQ 3.10 neither tells its consumers nor forgets them: it gives tasks to them that
// it drops on the way, and counts them as in work until the channel ends. No question
// that we could ask has another answer then.
func (c *Consumer) watchdog(ctx context.Context, s *session, channel *amqp.Channel, p *pulse) {
	for before := int64(0); service.Pause(ctx, c.renewal) == nil; {
		now := p.begun.Load()
		if now == before && p.inHand.Load() == 0 {
			p.renewed.Store(true)
			_ = s.within(callTime, channel.Close)
			return
		}
		before = now
	}
}
