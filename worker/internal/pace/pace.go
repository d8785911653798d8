// Package pace keeps all workers together below the provider's send rate. One
// token bucket in Redis is shared by every process; when Redis does not answer,
// each process takes its share of the rate by itself. Only the worker uses it.
package pace

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/time/rate"

	"email-gateway/shared/service"
)

// key is the bucket. There is one per Redis, because there is one provider account.
const key = "email-gateway:pace"

const (
	// burst is how much of a second's rate may go out at once: providers measure
	// the rate over about a second, so a tenth stays inside it.
	burst = 0.1
	// grant is how much of a second's rate one visit to Redis brings home. At 1,000
	// emails/s that is one visit per 50 emails; below 20/s every email visits.
	grant = 0.05
	// grantLife is how long tokens brought home may be used: older ones belong to a
	// second that is over.
	grantLife = time.Second
	// redisTimeout is how long an email waits for the bucket before the process
	// falls back to its own share.
	redisTimeout = 500 * time.Millisecond
	// fallbackFor is how long it then leaves Redis alone.
	fallbackFor = 2 * time.Second
)

// take refills the bucket by Redis's own clock, takes up to ARGV[3] tokens and
// returns how many it took and, if none, how many milliseconds until there is one.
//
//	KEYS[1] bucket (hash: tokens, at in microseconds)
//	ARGV[1] tokens per second, ARGV[2] capacity, ARGV[3] tokens wanted
var take = redis.NewScript(`
local now = redis.call('TIME')
local at = now[1] * 1000000 + now[2]
local per_second, capacity, wanted = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local bucket = redis.call('HMGET', KEYS[1], 'tokens', 'at')
local tokens = tonumber(bucket[1]) or capacity
local since = math.max(0, at - (tonumber(bucket[2]) or at))
tokens = math.min(capacity, tokens + since * per_second / 1000000)
local taken = math.min(wanted, math.floor(tokens))
tokens = tokens - taken
redis.call('HSET', KEYS[1], 'tokens', tostring(tokens), 'at', string.format('%.0f', at))
redis.call('PEXPIRE', KEYS[1], 60000)
local wait = 0
if taken == 0 then wait = math.ceil((1 - tokens) * 1000 / per_second) end
return {taken, wait}`)

// errAvoided: Redis did not answer a moment ago and is not asked again yet.
var errAvoided = errors.New("redis left alone after an error")

// Pacer hands out the right to send.
type Pacer struct {
	redis redis.Scripter
	rate  atomic.Uint64 // recipients per second, as float64 bits
	share atomic.Uint64 // of the rate that is ours when Redis is away, as float64 bits

	turn   chan struct{} // holds one item: whoever has it may touch what follows
	tokens int
	fresh  time.Time // when tokens were brought home
	own    *rate.Limiter
	avoid  time.Time // until then Redis is left alone
}

// New makes a Pacer for a rate in recipients per second.
func New(client redis.Scripter, perSecond float64) *Pacer {
	p := &Pacer{redis: client, turn: make(chan struct{}, 1), own: rate.NewLimiter(rate.Limit(perSecond), 1)}
	p.turn <- struct{}{}
	p.SetRate(perSecond)
	p.SetProcesses(1)
	return p
}

// SetRate changes the rate from now on.
func (p *Pacer) SetRate(perSecond float64) { p.rate.Store(math.Float64bits(perSecond)) }

// Rate is the rate in force, in recipients per second.
func (p *Pacer) Rate() float64 { return math.Float64frombits(p.rate.Load()) }

// SetProcesses says among how many the rate is divided while Redis is away.
func (p *Pacer) SetProcesses(n int) {
	p.share.Store(math.Float64bits(1 / float64(max(n, 1))))
}

// Wait returns when an email to so many recipients may be sent, or when ctx ends.
// Providers count recipients, not messages.
func (p *Pacer) Wait(ctx context.Context, recipients int) error {
	select {
	case <-p.turn:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { p.turn <- struct{}{} }()

	for missing := recipients; ; {
		if time.Since(p.fresh) < grantLife {
			used := min(missing, p.tokens)
			missing -= used
			p.tokens -= used
		}
		if missing <= 0 {
			return nil
		}
		wait, err := p.fetch(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			if !errors.Is(err, errAvoided) {
				p.avoid = time.Now().Add(fallbackFor)
			}
			return p.ownShare(ctx, missing)
		case wait > 0:
			if err := service.Pause(ctx, wait); err != nil {
				return err
			}
		}
	}
}

// fetch brings tokens home, or says how long to wait for one.
func (p *Pacer) fetch(ctx context.Context) (time.Duration, error) {
	if time.Now().Before(p.avoid) {
		return 0, errAvoided
	}
	ctx, cancel := context.WithTimeout(ctx, redisTimeout)
	defer cancel()
	perSecond := p.Rate()
	answer, err := take.Run(ctx, p.redis, []string{key},
		perSecond, math.Max(1, perSecond*burst), math.Max(1, math.Floor(perSecond*grant))).Int64Slice()
	if err != nil {
		return 0, err
	}
	p.tokens, p.fresh = int(answer[0]), time.Now()
	return time.Duration(answer[1]) * time.Millisecond, nil
}

func (p *Pacer) ownShare(ctx context.Context, recipients int) error {
	p.own.SetLimit(rate.Limit(p.Rate() * math.Float64frombits(p.share.Load())))
	for range recipients {
		if err := p.own.Wait(ctx); err != nil {
			// The limiter does not wait for a turn that would come after ctx's end.
			return fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
		}
	}
	return nil
}
