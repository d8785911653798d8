package blob

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

const (
	// mostCalls limits the calls of a folder that run at once, so that a network disk that hangs costs 64 threads at most:
	// a process with 10,000 of them is killed.
	mostCalls = 64
	// checkTime limits a check of the storage. The first one of the api lists files, which takes seconds in a large folder.
	checkTime = 30 * time.Second
)

// calls runs the calls of a folder. A system call on a network disk whose server does not answer ignores its context and
// may return after hours, or never. nil = the storage's calls end with their context.
type calls chan struct{}

// do runs f, and returns when it has returned, ctx ends, or readTimeout is over. If f returns later, late is called; it
// may be nil.
func (c calls) do(ctx context.Context, f func() error, late func()) error {
	_, err := c.run(ctx, readTimeout, f, late)
	return err
}

// finally runs f, and returns when it has returned or limit is over. If no call could begin until then, f runs later, in a
// goroutine that needs no thread while it waits.
func (c calls) finally(limit time.Duration, f func()) {
	run := func() error { f(); return nil }
	if begun, _ := c.run(context.Background(), limit, run, nil); !begun {
		go func() {
			c <- struct{}{}
			defer func() { <-c }()
			f()
		}()
	}
}

// run is do with another limit, and reports whether f has begun.
func (c calls) run(ctx context.Context, limit time.Duration, f func() error, late func()) (begun bool, err error) {
	if c == nil {
		return true, f()
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the storage has not responded for %s", limit))
	defer cancel()
	select {
	case c <- struct{}{}:
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
	done, left := make(chan error), make(chan struct{})
	defer close(left)
	go func() {
		defer func() { <-c }()
		err := f()
		select {
		case done <- err:
		case <-left:
			if late != nil {
				late()
			}
		}
	}()
	select {
	case err := <-done:
		return true, err
	case <-ctx.Done():
		return true, context.Cause(ctx)
	}
}

// checks runs at most one check of each kind at a time, and lets further callers wait for its result.
type checks struct {
	running singleflight.Group

	mu   sync.Mutex
	last map[string]error // the failures of each kind's last check
}

// do runs f, or waits for the running check, until ctx ends. The error of a check that takes longer contains that of the
// last one, which has the reason.
func (c *checks) do(ctx context.Context, kind string, f func(context.Context) error) error {
	result := c.running.DoChan(kind, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), checkTime) // others wait for it too
		defer cancel()
		err := f(ctx)
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.last == nil {
			c.last = map[string]error{}
		}
		c.last[kind] = err
		return nil, err
	})
	select {
	case r := <-result:
		return r.Err
	case <-ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.last[kind]; err != nil {
		return fmt.Errorf("no response in time: %w; the last check failed: %w", ctx.Err(), err)
	}
	return fmt.Errorf("no response in time: %w", ctx.Err())
}
