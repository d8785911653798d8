package rabbitmq

import (
	"context"
	"time"
)

// RenewAfter sets the idle time after which the consumer, which must not be started yet, is
// renewed.
func (c *Consumer) RenewAfter(d time.Duration) { c.renewal = d }

// SetAsideAfter sets how long a batch waits for the republishing of its tasks. The consumer must not be started yet.
func (c *Consumer) SetAsideAfter(d time.Duration) { c.aside.after = d }

// Measure runs one round.
func (c *QueueMetrics) Measure(ctx context.Context) error {
	_, err := c.runOnce(ctx)
	return err
}
