package rabbitmq

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"email-gateway/shared/service"
)

const (
	// asideAfter is how long a batch waits for the republishing of its tasks before it is set aside. Elections of a leader and
	// restarts of a node take less.
	asideAfter = 30 * time.Second
	// maxAside limits the batches, and so the channels, that are set aside. A further batch waits in its place.
	maxAside = 16
)

// aside has the tasks that could not be republished for asideAfter. The consumer leaves them their channel, to which they can
// be acknowledged, and takes other tasks on a new one. They are republished until that succeeds, or their channel ends and
// the broker delivers them again.
type aside struct {
	after   time.Duration
	running sync.WaitGroup

	mu      sync.Mutex
	batches int
	tasks   int
	cause   error // of the last try that failed
}

// begin records tasks. keep says whether their batch may be set aside.
func (a *aside) begin(tasks int, cause error) (keep bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tasks += tasks
	a.cause = cause
	if a.batches == maxAside {
		return false
	}
	a.batches++
	return true
}

// update records that so many tasks were republished or have lost their channel; cause is that of the tasks that are left.
func (a *aside) update(ended int, cause error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.tasks -= ended; cause != nil {
		a.cause = cause
	}
}

// end makes room for another batch.
func (a *aside) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.batches--
}

// err returns an error while tasks wait for being republished.
func (a *aside) err() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.tasks == 0 {
		return nil
	}
	return fmt.Errorf("%d tasks cannot be republished: %w", a.tasks, a.cause)
}

// channelTasks are the tasks of one channel.
type channelTasks struct {
	// ctx ends with the channel and when the consumer stops: until then tasks can be republished and acknowledged.
	ctx context.Context //nolint:containedctx // of tasks that outlive their batch
	// leave ends the deliveries on the channel.
	leave func()
	// aside are the batches that were set aside.
	aside sync.WaitGroup
	kept  atomic.Bool // there are some
}

// tasksOf returns the tasks of a channel, which has none yet.
func (c *Consumer) tasksOf(s *session, channel *amqp.Channel) *channelTasks {
	ctx, cancel := context.WithCancel(c.stopping)
	closes := channel.NotifyClose(make(chan *amqp.Error, 1))
	go func() {
		defer cancel()
		select {
		case <-closes: //nolint:errcheck // logEnd logs it; the end of a channel with tasks set aside only delivers these again
		case <-s.ctx.Done():
		}
	}()
	return &channelTasks{ctx: ctx}
}

// closeAfter closes a channel, if tasks were set aside when these are done.
func (c *Consumer) closeAfter(s *session, channel *amqp.Channel, t *channelTasks) error {
	if !t.kept.Load() {
		return s.withTimeout(callTime, channel.Close)
	}
	c.aside.running.Go(func() {
		t.aside.Wait()
		if t.ctx.Err() == nil {
			_ = s.withTimeout(callTime, channel.Close)
		}
	})
	return nil
}

// republishAll publishes tasks to their next queues and acknowledges them on this one. If some cannot be published for
// asideAfter, it sets them aside.
func (c *Consumer) republishAll(t *channelTasks, failed []result) {
	var logOnce sync.Once
	rest, err := c.tryRepublish(t.ctx, failed, time.Now().Add(c.aside.after), &logOnce)
	if len(rest) == 0 || t.ctx.Err() != nil {
		return
	}
	keep := c.aside.begin(len(rest), err)
	if !keep {
		c.repeatRepublish(t, rest, &logOnce)
		return
	}
	t.kept.Store(true)
	t.aside.Add(1)
	c.aside.running.Go(func() {
		defer t.aside.Done()
		defer c.aside.end()
		c.repeatRepublish(t, rest, &logOnce)
	})
	t.leave()
}

// repeatRepublish tries each task once, again and again, so that no task waits for another one. What is published is
// acknowledged after each round, and not at the end, which may be hours later: the broker would deliver it again if the
// channel ended before.
func (c *Consumer) repeatRepublish(t *channelTasks, rest []result, logOnce *sync.Once) {
	for len(rest) > 0 && service.Pause(t.ctx, lastWait) == nil {
		left, err := c.tryRepublish(t.ctx, rest, time.Now(), logOnce)
		c.aside.update(len(rest)-len(left), err)
		rest = left
	}
	c.aside.update(len(rest), nil)
}
