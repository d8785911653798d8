package asynqueue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
)

// errForeign: the Redis belongs to another installation.
var errForeign = errors.New("REDIS_URL does not name a Redis of this installation")

// errUnchecked is the state of a marker that was not compared yet.
var errUnchecked = errors.New("redis was not checked yet")

// WithInstallation returns the same Redis for the programs of one installation, whose id identify returns. The first program
// stores the id in Redis as a marker. With the marker of another installation, Ping fails, and so do SET and scripts: asynq puts,
// takes and ends tasks with scripts only. While Redis does not let the marker be read, they pass: the queues of a Cluster may
// be on nodes that respond, and Ping compares again. Call WithPrefix before.
func (c Conn) WithInstallation(identify func(context.Context) (uuid.UUID, error), log *slog.Logger) Conn {
	c.marker = &marker{identify: identify, log: log, key: "email-gateway:" + c.prefix + "installation", state: errUnchecked}
	return c
}

// marker compares the id in Redis with the installation's.
type marker struct {
	identify func(context.Context) (uuid.UUID, error)
	log      *slog.Logger
	key      string

	admits atomic.Bool // scripts pass: state is nil, or errUnchecked after an error of Redis
	mu     sync.Mutex
	state  error // errUnchecked or errForeign; nil = it is the installation's
}

// check sets the marker if there is none, and compares it. It logs when the result changes.
func (m *marker) check(caller context.Context, client redis.UniversalClient) error {
	ctx, cancel := context.WithTimeout(caller, ioTimeout)
	defer cancel()
	id, err := m.identify(ctx)
	if err != nil {
		return fmt.Errorf("read the id of the installation: %w", err)
	}
	both := client.Pipeline()
	set, get := both.SetNX(ctx, m.key, id.String(), 0), both.Get(ctx, m.key)
	_, _ = both.Exec(ctx) // a full Redis refuses the first command only
	switch found, err := get.Result(); {
	case errors.Is(err, redis.Nil):
		return m.unread(caller, fmt.Errorf("write the marker of redis: %w", set.Err()))
	case err != nil:
		return m.unread(caller, fmt.Errorf("read the marker of redis: %w", err))
	case found == id.String():
		return m.checked(nil)
	default:
		return m.checked(fmt.Errorf("%w: the key %s contains %q, which is not the id of this one, %s. Give each installation a Redis or a database number "+
			"of its own; if the other one does not use this Redis any more, delete the key", errForeign, m.key, found, id))
	}
}

func (m *marker) checked(now error) error {
	m.mu.Lock()
	before := m.state
	m.state = now
	m.admits.Store(now == nil)
	m.mu.Unlock()
	switch {
	case now != nil && !errors.Is(before, errForeign):
		m.log.Error("wrong redis", "error", now)
	case now == nil && errors.Is(before, errForeign):
		m.log.Info("the redis is this installation's again")
	}
	return now
}

// unread admits scripts after an error of Redis, unless the marker has been compared or the caller has left. It returns the
// error.
func (m *marker) unread(caller context.Context, err error) error {
	m.mu.Lock()
	first := errors.Is(m.state, errUnchecked) && caller.Err() == nil && m.admits.CompareAndSwap(false, true)
	m.mu.Unlock()
	if first {
		m.log.Warn("redis is used before its marker was compared", "error", err)
	}
	return err
}

// admit returns nil unless the Redis is another installation's or the id is unknown. After the first comparison only ping
// compares again.
func (m *marker) admit(ctx context.Context, client redis.UniversalClient) error {
	if m.admits.Load() {
		return nil
	}
	m.mu.Lock()
	state := m.state
	m.mu.Unlock()
	if !errors.Is(state, errUnchecked) {
		return state
	}
	if err := m.check(ctx, client); !m.admits.Load() {
		return err
	}
	return nil
}

// guard is a hook for a go-redis client that refuses SET and scripts in a Redis of another installation.
type guard struct {
	marker *marker
	client redis.UniversalClient
}

// DialHook implements redis.Hook.
func (g guard) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessPipelineHook implements redis.Hook.
func (g guard) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// ProcessHook implements redis.Hook.
func (g guard) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		switch cmd.Name() {
		case "evalsha", "eval", "set":
			if err := g.marker.admit(ctx, g.client); err != nil {
				cmd.SetErr(err)
				return err
			}
		}
		return next(ctx, cmd)
	}
}
