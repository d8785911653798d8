package asynqueue

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// suspectAfter is how long a command may be unanswered before the node is pinged. A Redis that forks or syncs its log
	// pauses for 0.1 s.
	suspectAfter = 500 * time.Millisecond
	// nodePing bounds a ping. suspectAfter + nodePing is shorter than ioTimeout: a command that
	// timed out finds the node marked as down and is not repeated there.
	nodePing = time.Second
	// nodePause is the time between pings of a node that is down. The slot map is reloaded as often, so a promoted replica is
	// found within this time after its election.
	nodePause = 200 * time.Millisecond
)

// errNodeDown is returned immediately for a command to a node that is down.
var errNodeDown = errors.New("the redis node of this key does not answer")

// nodeGuard is a hook for the client of one node of a Redis Cluster. If the node does not answer, it reloads the slot map and
// fails further commands immediately until a ping succeeds.
//
// go-redis reloads the slot map only every 10 s and after a MOVED. A dead master sends none, and its commands would time out
// one after the other: a goroutine that serves several queues, such as asynq's fetch loop, would spend its time on the
// unreachable one.
type nodeGuard struct {
	node   *redis.Client
	reload func() // reloads the slot map in the background; a call during a reload does nothing

	down     atomic.Bool
	watching atomic.Bool
}

// guardNodes adds a nodeGuard to each node of a cluster's client.
func guardNodes(cluster *redis.ClusterClient) {
	reload := func() { cluster.ReloadState(context.Background()) }
	cluster.OnNewNode(func(node *redis.Client) { node.AddHook(&nodeGuard{node: node, reload: reload}) })
}

// guardsPing marks the context of the guard's own ping, and so that of go-redis's handshake on the connection of the ping.
type guardsPing struct{}

// fails reports whether a command fails immediately.
func (g *nodeGuard) fails(ctx context.Context) bool {
	return g.down.Load() && ctx.Value(guardsPing{}) == nil
}

// DialHook implements redis.Hook.
func (g *nodeGuard) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (g *nodeGuard) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if g.fails(ctx) {
			return errNodeDown
		}
		unanswered := time.AfterFunc(suspectAfter, g.suspect)
		defer unanswered.Stop()
		err := next(ctx, cmd)
		g.note(err)
		return err
	}
}

// ProcessPipelineHook implements redis.Hook.
func (g *nodeGuard) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if g.fails(ctx) {
			for _, cmd := range cmds {
				cmd.SetErr(errNodeDown)
			}
			return errNodeDown
		}
		unanswered := time.AfterFunc(suspectAfter, g.suspect)
		defer unanswered.Stop()
		err := next(ctx, cmds)
		g.note(err)
		for _, cmd := range cmds {
			g.note(cmd.Err())
		}
		return err
	}
}

// note handles the error of a command. After an error that is not a reply of the server, the node is pinged. A server that
// cannot serve the slot may have lost it: the slot map is reloaded. go-redis itself follows MOVED.
func (g *nodeGuard) note(err error) {
	var answered redis.Error
	switch {
	case err == nil, errors.Is(err, redis.Nil), errors.Is(err, context.Canceled):
	case !errors.As(err, &answered):
		g.suspect()
	case redis.HasErrorPrefix(err, "CLUSTERDOWN"), redis.HasErrorPrefix(err, "READONLY"), redis.HasErrorPrefix(err, "MASTERDOWN"):
		g.reload()
	}
}

// suspect starts the pings, unless they are already running.
func (g *nodeGuard) suspect() {
	if g.watching.CompareAndSwap(false, true) {
		go g.watch()
	}
}

// watch pings the node until it answers, or until go-redis closes its client because the node has
// left the cluster.
func (g *nodeGuard) watch() {
	defer g.watching.Store(false)
	for {
		err := g.ping()
		g.down.Store(err != nil)
		if err == nil {
			return
		}
		g.reload()
		<-time.After(nodePause)
	}
}

// ping succeeds if the server answers anything, or if the client is closed.
func (g *nodeGuard) ping() error {
	ctx, cancel := context.WithTimeout(context.WithValue(context.Background(), guardsPing{}, true), nodePing)
	defer cancel()
	err := g.node.Ping(ctx).Err()
	var answered redis.Error
	if errors.As(err, &answered) || errors.Is(err, redis.ErrClosed) {
		return nil
	}
	return err
}
