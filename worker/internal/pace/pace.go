// Package pace keeps all workers together below the rate that the provider accepts: the
// account's, and less for a minute after the provider throttled. One token bucket in Redis
// is shared by every process; when Redis does not answer, each process takes its share of
// the rate by itself. Only the worker uses it.
package pace

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync"
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
// returns how many it took and, if none, how many milliseconds until there is one; then
// when the rate was last cut, how many milliseconds ago that was, and the rate then.
//
//	KEYS[1] bucket (hash: tokens, at in microseconds, cut_at in microseconds, cut_from)
//	ARGV[1] tokens per second, ARGV[2] capacity, ARGV[3] tokens wanted
var take = redis.NewScript(`
local now = redis.call('TIME')
local at = now[1] * 1000000 + now[2]
local per_second, capacity, wanted = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local bucket = redis.call('HMGET', KEYS[1], 'tokens', 'at', 'cut_at', 'cut_from')
local tokens = tonumber(bucket[1]) or capacity
local since = math.max(0, at - (tonumber(bucket[2]) or at))
tokens = math.min(capacity, tokens + since * per_second / 1000000)
local taken = math.min(wanted, math.floor(tokens))
tokens = tokens - taken
redis.call('HSET', KEYS[1], 'tokens', tostring(tokens), 'at', string.format('%.0f', at))
redis.call('PEXPIRE', KEYS[1], 120000)
local wait = 0
if taken == 0 then wait = math.ceil((1 - tokens) * 1000 / per_second) end
local cut_at = bucket[3] or ''
return {taken, wait, cut_at, math.floor((at - (tonumber(cut_at) or at)) / 1000), bucket[4] or '0'}`)

// cutRate notes that the rate is cut now and empties the bucket, if ARGV[1] is when it was
// last cut and that is ARGV[3] microseconds ago: a process that does not know of the last
// cut does not know the rate either. It returns what take returns of the last cut.
//
//	KEYS[1] bucket, ARGV[1] the last cut, ARGV[2] tokens per second until now, ARGV[3] the least pause
var cutRate = redis.NewScript(`
local now = redis.call('TIME')
local at = now[1] * 1000000 + now[2]
local bucket = redis.call('HMGET', KEYS[1], 'cut_at', 'cut_from')
local last, from = bucket[1] or '', bucket[2] or '0'
if last == ARGV[1] and at - (tonumber(last) or 0) >= tonumber(ARGV[3]) then
    last, from = string.format('%.0f', at), ARGV[2]
    redis.call('HSET', KEYS[1], 'tokens', '0', 'at', last, 'cut_at', last, 'cut_from', from)
    redis.call('PEXPIRE', KEYS[1], 120000)
end
return {last, math.floor((at - (tonumber(last) or at)) / 1000), from}`)

// errAvoided: Redis did not answer a moment ago and is not asked again yet.
var errAvoided = errors.New("redis left alone after an error")

// Pacer hands out the right to send.
type Pacer struct {
	redis redis.Scripter
	now   func() time.Time
	full  atomic.Uint64 // the account's recipients per second, as float64 bits
	share atomic.Uint64 // of the rate that is ours when Redis is away, as float64 bits
	last  atomic.Pointer[cut]

	changed  chan struct{} // holds an item when the rate was cut
	returned atomic.Int64  // tokens of emails that were not sent; lost when their second is over
	cutting  sync.Mutex    // held while a cut is made or learnt

	turn   chan struct{} // holds one item: whoever has it may touch what follows
	tokens int
	fresh  time.Time // when tokens were brought home
	own    *rate.Limiter
	avoid  time.Time // until then Redis is left alone
}

// New makes a Pacer for a rate in recipients per second.
func New(client redis.Scripter, perSecond float64) *Pacer {
	p := &Pacer{
		redis: client, now: time.Now, changed: make(chan struct{}, 1),
		turn: make(chan struct{}, 1), own: rate.NewLimiter(rate.Limit(perSecond), 1),
	}
	p.turn <- struct{}{}
	p.last.Store(&cut{})
	p.SetRate(perSecond)
	p.SetProcesses(1)
	return p
}

// SetRate changes the account's rate from now on.
func (p *Pacer) SetRate(perSecond float64) { p.full.Store(math.Float64bits(perSecond)) }

// FullRate is the account's rate, in recipients per second.
func (p *Pacer) FullRate() float64 { return math.Float64frombits(p.full.Load()) }

// Rate is the rate in force, in recipients per second: less than FullRate for a minute
// after the provider throttled.
func (p *Pacer) Rate() float64 { return p.last.Load().rate(p.FullRate(), p.now()) }

// Changed receives when the rate was cut, by this process or another.
func (p *Pacer) Changed() <-chan struct{} { return p.changed }

// Throttled halves the rate for all processes, because the provider refused a call that
// began then. Calls from before the last cut say nothing about the rate after it, nor does
// anything within a second of it.
func (p *Pacer) Throttled(begun time.Time) {
	p.cutting.Lock()
	defer p.cutting.Unlock()
	last := p.last.Load()
	if !last.at.IsZero() && (begun.Before(last.at) || p.now().Sub(last.at) < cutPause) {
		return
	}
	if !p.cutShared(last, begun) {
		p.adopt(cut{at: p.now(), from: p.Rate()})
	}
}

// cutShared cuts the rate in Redis because of a call that began then, or adopts the cut of
// another process. It returns false if Redis does not answer.
func (p *Pacer) cutShared(last *cut, begun time.Time) bool {
	if p.redis == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), redisTimeout)
	defer cancel()
	stamp := last.stamp
	for range 2 { // the first round reads the last cut, if this process does not know it
		answer, err := cutRate.Run(ctx, p.redis, []string{key}, stamp,
			strconv.FormatFloat(p.Rate(), 'f', -1, 64), cutPause.Microseconds()).Slice()
		if err != nil {
			return false
		}
		if len(answer) > 0 && answer[0] == "" && stamp != "" {
			stamp = "" // Redis has lost the cut that this process knows: the key expired or was deleted
			continue
		}
		now, known := p.cutOf(answer)
		if !known {
			return false
		}
		if now.at.After(p.last.Load().at) {
			p.adopt(now)
		}
		if now.stamp == stamp || begun.Before(now.at) || p.now().Sub(now.at) < cutPause {
			return true
		}
		stamp = now.stamp
	}
	return true
}

// cutOf reads what a script says of the last cut: its stamp, its age in milliseconds and
// the rate then.
func (p *Pacer) cutOf(answer []any) (last cut, known bool) {
	if len(answer) != 3 {
		return cut{}, false
	}
	stamp, _ := answer[0].(string)
	age, _ := answer[1].(int64)
	text, _ := answer[2].(string)
	from, err := strconv.ParseFloat(text, 64)
	if stamp == "" || err != nil || from <= 0 {
		return cut{}, false
	}
	return cut{at: p.now().Add(-time.Duration(age) * time.Millisecond), from: from, stamp: stamp}, true
}

// adopt goes by c from now on. p.cutting is held.
func (p *Pacer) adopt(c cut) {
	p.last.Store(&c)
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// learn adopts what another process has told Redis of the last cut.
func (p *Pacer) learn(answer []any) {
	c, known := p.cutOf(answer)
	if !known || c.stamp == p.last.Load().stamp {
		return
	}
	p.cutting.Lock()
	defer p.cutting.Unlock()
	if last := p.last.Load(); c.at.After(last.at) {
		p.adopt(c)
	}
}

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
		returned := int(p.returned.Swap(0))
		if time.Since(p.fresh) < grantLife {
			p.tokens += returned
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

// Return gives back the tokens of an email that was not sent, for the next one. It does not wait.
func (p *Pacer) Return(recipients int) { p.returned.Add(int64(recipients)) }

// fetch brings tokens home, or says how long to wait for one.
func (p *Pacer) fetch(ctx context.Context) (time.Duration, error) {
	if time.Now().Before(p.avoid) {
		return 0, errAvoided
	}
	ctx, cancel := context.WithTimeout(ctx, redisTimeout)
	defer cancel()
	perSecond := p.Rate()
	answer, err := take.Run(ctx, p.redis, []string{key},
		perSecond, math.Max(1, perSecond*burst), math.Max(1, math.Floor(perSecond*grant))).Slice()
	if err != nil {
		return 0, err
	}
	if len(answer) != 5 {
		return 0, fmt.Errorf("take tokens: %d values", len(answer))
	}
	taken, _ := answer[0].(int64)
	wait, _ := answer[1].(int64)
	p.learn(answer[2:])
	p.tokens, p.fresh = int(taken), time.Now()
	return time.Duration(wait) * time.Millisecond, nil
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
