package chaos

import (
	"context"
	"time"

	"email-gateway/scripts/chaos/cluster"
	"email-gateway/scripts/chaos/load"
)

// deliveryTime is how long after the queues are empty a webhook endpoint may need for its last
// events: a worker that was killed or frozen has a lease of a minute.
const deliveryTime = 90 * time.Second

// catchUpTime is how long readers of the events may need for the last page.
const catchUpTime = 30 * time.Second

// follow starts readers of all tenants' events. The returned function ends them when they have read as
// much as others have, or after a timeout.
func follow(ctx context.Context, l *load.Load) (stop func(others []load.Feed) []load.Feed) {
	follower := l.NewFollower()
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		follower.Run(ctx)
	}()
	return func(others []load.Feed) []load.Feed {
		waiting, done := context.WithTimeout(ctx, catchUpTime)
		follower.Await(waiting, others)
		done()
		cancel()
		<-ended
		return follower.Feeds()
	}
}

// disturb starts the outages of the webhook endpoints. The returned function ends them.
func disturb(ctx context.Context, gateway *cluster.Cluster, seed uint64) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		gateway.Receivers.Disturb(ctx, seed)
	}()
	return func() {
		cancel()
		<-ended
	}
}
