package rabbitmq

import (
	"context"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"email-gateway/shared/service"
)

// renewal is the idle time after which a consumer is renewed.
const renewal = 30 * time.Second

// activity counts a consumer's batches on one channel.
type activity struct {
	begun   atomic.Int64 // all batches so far
	inHand  atomic.Int64 // batches being filled or processed
	renewed atomic.Bool
}

func (p *activity) begin() { p.begun.Add(1); p.inHand.Add(1) }
func (p *activity) end()   { p.inHand.Add(-1) }

// watchdog closes the channel of a consumer that has been idle for renewal, so that it is renewed. If a replicated queue is
// deleted and immediately declared again, RabbitMQ 3.10 neither cancels its consumers nor removes them: it drops the tasks it
// delivers to them and counts them as unacknowledged until the channel ends. No query shows this state.
func (c *Consumer) watchdog(ctx context.Context, s *session, channel *amqp.Channel, p *activity) {
	for before := int64(0); service.Pause(ctx, c.renewal) == nil; {
		now := p.begun.Load()
		if now == before && p.inHand.Load() == 0 {
			p.renewed.Store(true)
			_ = s.withTimeout(callTime, channel.Close)
			return
		}
		before = now
	}
}
