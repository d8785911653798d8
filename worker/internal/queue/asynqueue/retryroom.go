package asynqueue

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// waitingShare limits the delayed tasks on a queue to a quarter of the window. Other retries wait in Postgres, so that
	// there is room for due tasks.
	waitingShare = 4
	// roomTimeout bounds the read of a queue's room, for which the recording of an attempt's result waits.
	roomTimeout = 500 * time.Millisecond
)

// RetryRoom reports whether there is room for retries on the queues.
type RetryRoom struct {
	conn  Conn
	redis redis.UniversalClient
}

// NewRetryRoom makes a RetryRoom that uses the caller's client.
func NewRetryRoom(conn Conn, client redis.UniversalClient) *RetryRoom {
	return &RetryRoom{conn: conn, redis: client}
}

// Free reports whether one more delayed task fits on the queue. It returns false while no
// dispatcher has set the queue's window, or if Redis does not answer within 0.5 s.
func (r *RetryRoom) Free(ctx context.Context, queueName string) bool {
	ctx, cancel := context.WithTimeout(ctx, roomTimeout)
	defer cancel()
	name := r.conn.queueName(queueName)
	keys := keysOf(name)
	pipe := r.redis.Pipeline()
	window := pipe.Get(ctx, ownKey(name, "window"))
	retry := pipe.ZCard(ctx, keys.retry)
	scheduled := pipe.ZCard(ctx, keys.scheduled)
	if _, err := pipe.Exec(ctx); err != nil {
		return false
	}
	size, err := window.Int64()
	return err == nil && (retry.Val()+scheduled.Val())*waitingShare < size
}
