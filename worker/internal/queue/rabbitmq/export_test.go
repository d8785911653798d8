package rabbitmq

import (
	"context"
	"time"
)

// RenewAfter sets the idle time after which the consumer, which must not be started yet, is
// renewed.
func (c *Consumer) RenewAfter(d time.Duration) { c.renewal = d }

// Measure runs one round.
func (c *QueueMetrics) Measure(ctx context.Context) error {
	_, err := c.runOnce(ctx)
	return err
}
