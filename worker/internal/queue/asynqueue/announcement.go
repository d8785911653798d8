package asynqueue

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"email-gateway/shared/service"
)

const (
	// announceEvery limits a publisher to 200 announcements per second. An announcement serves all tasks that were
	// published since the last one.
	announceEvery = 5 * time.Millisecond
	// announcementBuffer is how many announcements a subscriber holds until it has passed on the first one.
	announcementBuffer = 16
)

// announcements is the pub/sub channel on which publishers announce that they have put tasks on any queue. The messages
// are empty. One that is lost does no harm: an idle consumer looks at the queues every MaxIdle.
func (c Conn) announcements() string { return "email-gateway:" + c.prefix + "published" }

// announcer announces published tasks, in the background.
type announcer struct {
	redis   redis.UniversalClient
	channel string

	mu      sync.Mutex
	running bool
	again   bool // tasks were published since the last announcement
	sending sync.WaitGroup
}

// announce sends an announcement soon. It does not wait, and failures are ignored.
func (a *announcer) announce() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.again = true
	if !a.running {
		a.running = true
		a.sending.Go(a.run)
	}
}

// run sends announcements until nothing was published since the last one.
func (a *announcer) run() {
	for a.next() {
		ctx, cancel := context.WithTimeout(context.Background(), ioTimeout)
		_ = a.redis.Publish(ctx, a.channel, "").Err()
		_ = service.Pause(ctx, announceEvery)
		cancel()
	}
}

func (a *announcer) next() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.running, a.again = a.again, false
	return a.running
}

// subscriber receives announcements for the Servers of a consumer.
type subscriber struct {
	mu   sync.Mutex
	next chan struct{}
}

func newSubscriber() *subscriber { return &subscriber{next: make(chan struct{})} }

// listen receives announcements until ctx ends. go-redis checks the connection every few seconds and connects again.
func (s *subscriber) listen(ctx context.Context, client redis.UniversalClient, channel string) {
	subscription := client.Subscribe(ctx, channel)
	stop := context.AfterFunc(ctx, func() { _ = subscription.Close() })
	defer stop()
	// After a subscription too: tasks may have been published while there was no connection.
	for range subscription.ChannelWithSubscriptions(redis.WithChannelSize(announcementBuffer)) {
		s.wake()
	}
}

func (s *subscriber) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.next)
	s.next = make(chan struct{})
}

// announced returns a channel that the next announcement closes.
func (s *subscriber) announced() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.next
}

// idling is the Redis client of one asynq.Server: when all queues were empty, it delays the next script that takes a task
// until tasks are announced, or for maxIdle. asynq itself only polls at an interval. One goroutine per Server takes tasks.
type idling struct {
	redis.UniversalClient
	subscriber *subscriber
	queues     int
	maxIdle    time.Duration
	stopping   context.Context

	empty     int             // how many queues were empty since the last task or delay
	announced <-chan struct{} // of the time before the first of them was looked at
}

// EvalSha implements redis.Scripter.
func (i *idling) EvalSha(ctx context.Context, sha1 string, keys []string, args ...any) *redis.Cmd {
	if !takes(keys) {
		return i.UniversalClient.EvalSha(ctx, sha1, keys, args...)
	}
	i.wait()
	return i.count(i.UniversalClient.EvalSha(ctx, sha1, keys, args...))
}

// Eval implements redis.Scripter: it is used for a script that Redis does not know yet.
func (i *idling) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	answer := i.UniversalClient.Eval(ctx, script, keys, args...)
	if !takes(keys) {
		return answer
	}
	return i.count(answer)
}

// wait returns when a look at the next queue is due. The announcement that it waits for may have come during the looks
// at the queues, after the one at the announced task's queue.
func (i *idling) wait() {
	if i.empty >= i.queues {
		i.empty = 0
		timer := time.NewTimer(i.maxIdle)
		defer timer.Stop()
		select {
		case <-i.announced:
		case <-timer.C:
		case <-i.stopping.Done():
		}
	}
	if i.empty == 0 {
		i.announced = i.subscriber.announced()
	}
}

func (i *idling) count(answer *redis.Cmd) *redis.Cmd {
	switch err := answer.Err(); {
	case err == nil:
		i.empty = 0
	case errors.Is(err, redis.Nil):
		i.empty++
	}
	return answer
}
