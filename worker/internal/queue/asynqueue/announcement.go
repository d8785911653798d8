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
	// announceEvery limits a publisher to 200 announcements per second. One announcement covers all tasks that were published
	// since the last one.
	announceEvery = 5 * time.Millisecond
	// announcementBuffer is the size of the subscription's channel.
	announcementBuffer = 16
)

// announcements is the pub/sub channel on which publishers announce that they have put tasks on any queue. The messages are
// empty. If one is lost, an idle consumer polls the queues after MaxIdle, as it does if the ACL of Redis refuses the channel,
// and in a cluster while the node of the channel is down. Gateways in several databases of one Redis share the channel, and
// wake each other.
func (c Conn) announcements() string { return "email-gateway:" + c.prefix + "published" }

// announcer announces published tasks in the background.
type announcer struct {
	redis   redis.UniversalClient
	channel string

	mu      sync.Mutex
	running bool
	again   bool // tasks were published since the last announcement
	sending sync.WaitGroup
}

// announce requests an announcement. It does not wait, and failures are ignored.
func (a *announcer) announce() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.again = true
	if !a.running {
		a.running = true
		a.sending.Go(a.run)
	}
}

// run sends announcements until no task was published since the last one.
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

// listen receives announcements until ctx ends. go-redis sends a PING every few seconds, and reconnects after an error.
func (s *subscriber) listen(ctx context.Context, client redis.UniversalClient, channel string) {
	subscription := client.Subscribe(ctx, channel)
	stop := context.AfterFunc(ctx, func() { _ = subscription.Close() })
	defer stop()
	// Wakes after a subscription too: tasks may have been published while there was no connection.
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

// pollDelayer is the Redis client of one asynq.Server. When all queues were empty, it delays the next script that takes
// a task until tasks are announced, or for maxIdle. asynq itself only polls at an interval. After an error, which asynq
// answers with the next script, it waits too: a Redis that is full or lost its replica refuses tens of thousands of
// scripts per second. One goroutine per Server takes tasks.
type pollDelayer struct {
	redis.UniversalClient
	subscriber *subscriber
	queues     int
	maxIdle    time.Duration
	stopping   context.Context

	empty     int           // how many queues were empty since the last task or wait
	refusal   time.Duration // the pause before the next script; it doubles with each error
	startedAt time.Time
	announced <-chan struct{} // obtained before the first queue is polled, so that no announcement is missed
}

// maxWait is the longest wait after which a task may be taken. asynq computes the lease of 30 s before it sends the script, and
// would abandon a task whose lease has ended. After a longer wait, for example because the process was frozen, asynq must try
// again with a new lease.
const maxWait = time.Second

// The pause after an error that follows a task or an empty queue, and the longest one: a queue in another node of a Redis
// Cluster may have tasks.
const (
	firstRefusal = 5 * time.Millisecond
	lastRefusal  = 500 * time.Millisecond
)

// EvalSha implements redis.Scripter.
func (p *pollDelayer) EvalSha(ctx context.Context, sha1 string, keys []string, args ...any) *redis.Cmd {
	if !takes(keys) {
		return p.UniversalClient.EvalSha(ctx, sha1, keys, args...)
	}
	if waited := p.wait(); waited > maxWait {
		refused := redis.NewCmd(ctx)
		refused.SetErr(errNotAdmitted)
		return refused
	}
	return p.count(p.UniversalClient.EvalSha(ctx, sha1, keys, args...))
}

// Eval implements redis.Scripter: it is used for a script that Redis does not know yet.
func (p *pollDelayer) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	answer := p.UniversalClient.Eval(ctx, script, keys, args...)
	if !takes(keys) {
		return answer
	}
	return p.count(answer)
}

// wait blocks if the last poll failed or the last polls found all queues empty, and returns how long. Two rounds of
// polls begin at least announceEvery apart, whatever the number of publishers.
func (p *pollDelayer) wait() (waited time.Duration) {
	from := time.Now()
	if p.refusal > 0 {
		_ = service.Pause(p.stopping, p.refusal)
		waited = time.Since(from)
	}
	if p.empty >= p.queues {
		p.empty = 0
		waiting, cancel := context.WithTimeout(p.stopping, p.maxIdle)
		select {
		case <-p.announced:
			_ = service.Pause(waiting, announceEvery-time.Since(p.startedAt))
		case <-waiting.Done():
		}
		cancel()
		waited = time.Since(from)
	}
	if p.empty == 0 {
		p.startedAt, p.announced = time.Now(), p.subscriber.announced()
	}
	return waited
}

// count counts an empty queue. After an error asynq starts again with the first queue.
func (p *pollDelayer) count(answer *redis.Cmd) *redis.Cmd {
	switch err := answer.Err(); {
	case errors.Is(err, redis.Nil):
		p.empty++
		p.refusal = 0
	case redis.HasErrorPrefix(err, "NOSCRIPT"): // EVAL follows
	case err == nil || errors.Is(err, errNotAdmitted):
		p.empty, p.refusal = 0, 0
	default:
		p.empty, p.refusal = 0, min(max(firstRefusal, 2*p.refusal), lastRefusal)
	}
	return answer
}
