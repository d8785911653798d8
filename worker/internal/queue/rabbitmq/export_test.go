package rabbitmq

import "time"

// RenewAfter sets the idle time after which the consumer, which must not be started yet, is
// renewed.
func (c *Consumer) RenewAfter(d time.Duration) { c.renewal = d }
