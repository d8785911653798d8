// Package pendingresults stores in Redis the results of attempts that a worker cannot write to Postgres at present. A dispatcher
// that would end such an attempt with an unknown outcome, because its lease is over, writes the result instead.
//
// A result is stored under the attempt's random claim token, and is the same write as the worker's own: Postgres accepts it
// only while the email belongs to the attempt. So a lost key only means that the outcome is unknown, as it is without Redis.
package pendingresults

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"email-gateway/shared/store/outbox"
)

const (
	// keepFor is how long a result is kept, longer than Postgres may be away: after the deadline of an email (24 h by default),
	// its outcome no longer decides whether it is sent again.
	keepFor = 24 * time.Hour
	// timeout bounds a call of Redis.
	timeout = 2 * time.Second
	// silentTime is how long an attempt may wait for Redis after its lease: one more lease.
	silentTime = time.Minute
	// recorded is the value of a result that a dispatcher has written to Postgres. Its worker stores the result repeatedly, so an
	// absent key would not tell who has written it.
	recorded = "recorded"
)

// key is the Redis key of an attempt's result.
func key(token uuid.UUID) string { return "email-gateway:result:" + token.String() }

// Results are the results in one Redis. It is safe for concurrent use.
type Results struct {
	redis redis.UniversalClient

	mu     sync.Mutex
	silent time.Time // since when Find fails
	failed time.Time // when it failed last; zero = it does not fail
}

// New makes a Results on the caller's client.
func New(client redis.UniversalClient) *Results { return &Results{redis: client} }

// Store stores the result of the attempt whose claim token is t.Token, unless a dispatcher has recorded it. A longer text of an
// error is cut, and addresses and tax ids in it are masked.
func (r *Results) Store(ctx context.Context, t outbox.Transition) error {
	value, err := encode(t)
	if err != nil {
		return fmt.Errorf("store an attempt's result: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := r.redis.SetNX(ctx, key(t.Token), value, keepFor).Err(); err != nil {
		return fmt.Errorf("store an attempt's result: %w", err)
	}
	return nil
}

// MarkRecorded replaces a result that a dispatcher has written to Postgres: its worker then knows by whom.
func (r *Results) MarkRecorded(ctx context.Context, token uuid.UUID) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := r.redis.Set(ctx, key(token), recorded, keepFor).Err(); err != nil {
		return fmt.Errorf("mark an attempt's result as recorded: %w", err)
	}
	return nil
}

// Remove removes a result that Postgres has, and reports whether a dispatcher has written it.
func (r *Results) Remove(ctx context.Context, token uuid.UUID) (byDispatcher bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	value, err := r.redis.GetDel(ctx, key(token)).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return false, fmt.Errorf("remove an attempt's result: %w", err)
	}
	return value == recorded, nil
}

// Find returns the results of these attempts that are stored. A value that Store cannot have written counts as none. After
// Redis has not answered for silentTime, Find returns those that one of its nodes has returned, so that a failure of Redis delays
// the end of an attempt no longer.
func (r *Results) Find(ctx context.Context, tokens []uuid.UUID) (map[uuid.UUID]outbox.Transition, error) {
	found, err := r.find(ctx, tokens)
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	switch {
	case err == nil:
		r.failed = time.Time{}
		return found, nil
	case ctx.Err() != nil: // the program is stopping
		return nil, err
	case now.Sub(r.failed) > silentTime: // no attempt has waited for that long
		r.silent = now
	}
	r.failed = now
	if now.Sub(r.silent) < silentTime {
		return nil, err
	}
	return found, nil
}

// find returns what it has found with an error too.
func (r *Results) find(ctx context.Context, tokens []uuid.UUID) (map[uuid.UUID]outbox.Transition, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	pipe := r.redis.Pipeline() // a cluster refuses MGET for keys on several nodes
	answers := make([]*redis.StringCmd, len(tokens))
	for i, token := range tokens {
		answers[i] = pipe.Get(ctx, key(token))
	}
	_, _ = pipe.Exec(ctx) // the error of the first command that failed, which each answer has too
	found := make(map[uuid.UUID]outbox.Transition)
	var failed error
	for i, answer := range answers {
		value, err := answer.Bytes()
		if errors.Is(err, redis.Nil) || redis.HasErrorPrefix(err, "WRONGTYPE") {
			continue
		}
		if err != nil {
			failed = fmt.Errorf("find the results of attempts: %w", err)
			continue
		}
		if t, ok := decode(value, tokens[i]); ok {
			found[t.Token] = t
		}
	}
	return found, failed
}
