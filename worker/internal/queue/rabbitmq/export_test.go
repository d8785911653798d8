package rabbitmq

import "time"

// RenewAfter changes how long the consumer, which is not started yet, gets nothing
// before it asks anew.
func (c *Consumer) RenewAfter(d time.Duration) { c.renewal = d }
