// Package pace limits the send rate of all workers together to the account's rate, and to less for a minute after the
// provider throttled. All processes share one token bucket in Redis. If Redis does not answer, each process uses its
// share of the rate. Only the worker uses it.
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
)

// key is the Redis key of the bucket. There is one per Redis, because there is one provider account.
const key = "email-gateway:pace"

const (
	// burst is the fraction of a second's rate that may be sent at once. Providers measure the rate over about a
	// second, so a tenth stays within it.
	burst = 0.1
	// fetchFraction is the fraction of a second's rate that all processes together fetch per Redis call of each: a process
	// fetches its share. At 1,000 emails/s that is one call per 50 emails of a single process, or per 5 emails of each of ten;
	// with a share below 20/s it is one per email.
	fetchFraction = 0.05
	// tokenLife is how long fetched tokens are valid: the time in which the rate produces as many. Older tokens are
	// returned to the bucket, which holds at most a burst. Otherwise the tokens of idle processes and those produced
	// meanwhile would exceed the limit.
	tokenLife = time.Duration(fetchFraction * float64(time.Second))
	// redisTimeout is how long an email waits for the bucket before the process uses its own share.
	redisTimeout = 500 * time.Millisecond
	// fallbackFor is how long the process does not call Redis after that.
	fallbackFor = 2 * time.Second
)

// readClock is the beginning of the scripts. It reads Redis's clock and deletes times that are ahead of it, which were written
// before the clock was set back, or by a node whose clock was ahead: a cut would otherwise slow all processes down, and prevent
// another cut, until the clock reaches its time.
const readClock = `
local time = redis.call('TIME')
local at = time[1] * 1000000 + time[2]
for i, value in ipairs(redis.call('HMGET', KEYS[1], 'cut_at', 'accepted_at')) do
    if (tonumber(value) or 0) > at then redis.call('HDEL', KEYS[1], i == 1 and 'cut_at' or 'accepted_at') end
end`

// take refills the bucket by Redis's clock, adds ARGV[4] unused tokens, and takes up to ARGV[3] tokens. It returns the
// number of tokens taken; if none, the milliseconds until there is one; and then cutRate's result for the last cut.
// ARGV[5] is how many microseconds ago a call began that the provider accepted.
//
//	KEYS[1] bucket (hash: tokens, cut_from, cut_low; in microseconds at, cut_at, accepted_at)
//	ARGV[1] tokens per second, ARGV[2] capacity, ARGV[3] tokens wanted, ARGV[4] tokens returned,
//	ARGV[5] the age of the last acceptance, '' if there is no new one
var take = redis.NewScript(readClock + `
local per_second, capacity, wanted = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local bucket = redis.call('HMGET', KEYS[1], 'tokens', 'at', 'cut_at', 'cut_from', 'cut_low', 'accepted_at')
local tokens = tonumber(bucket[1]) or capacity
local since = math.max(0, at - (tonumber(bucket[2]) or at))
tokens = math.min(capacity, tokens + since * per_second / 1000000 + tonumber(ARGV[4]))
local taken = math.min(wanted, math.floor(tokens))
tokens = tokens - taken
redis.call('HSET', KEYS[1], 'tokens', tostring(tokens), 'at', string.format('%.0f', at))
if ARGV[5] ~= '' then
    local accepted = math.max(tonumber(bucket[6]) or 0, at - tonumber(ARGV[5]))
    redis.call('HSET', KEYS[1], 'accepted_at', string.format('%.0f', accepted))
end
redis.call('PEXPIRE', KEYS[1], 120000)
local wait = 0
if taken == 0 then wait = math.ceil((1 - tokens) * 1000 / per_second) end
local cut_at = bucket[3] or ''
return {taken, wait, cut_at, math.floor((at - (tonumber(cut_at) or at)) / 1000), bucket[4] or '0', bucket[5] or '0'}`)

// errAvoided: Redis failed a moment ago, and the process does not call it yet.
var errAvoided = errors.New("not calling redis after an error")

// Pacer limits the send rate.
type Pacer struct {
	redis redis.Cmdable
	now   func() time.Time
	full  atomic.Uint64 // the account's recipients per second, as float64 bits
	share atomic.Uint64 // this process's share of the rate, as float64 bits
	last  atomic.Pointer[cut]
	// accepted is the start of the newest call that the provider accepted, in Unix nanoseconds.
	accepted atomic.Int64

	changed  chan struct{} // receives a value after the rate was cut
	balance  atomic.Int64  // tokens returned minus tokens borrowed since the last Wait read it
	returned chan struct{} // receives a value after tokens were returned
	cutting  sync.Mutex    // held while a cut is made or adopted

	turn   chan struct{} // mutex of the fields below; holds one item
	debt   int           // tokens used before they were taken
	tokens int
	fresh  time.Time // when tokens were fetched
	own    *rate.Limiter
	avoid  time.Time // no Redis calls until then
	noted  int64     // the value of accepted stored in Redis
}

// New makes a Pacer for a rate in recipients per second.
func New(client redis.Cmdable, perSecond float64) *Pacer {
	p := &Pacer{
		redis: client, now: time.Now, changed: make(chan struct{}, 1),
		returned: make(chan struct{}, 1), turn: make(chan struct{}, 1), own: rate.NewLimiter(rate.Limit(perSecond), 1),
	}
	p.turn <- struct{}{}
	p.last.Store(&cut{})
	p.SetRate(perSecond)
	p.SetProcesses(1)
	return p
}

// SetRate changes the account's rate from now on.
func (p *Pacer) SetRate(perSecond float64) { p.full.Store(math.Float64bits(perSecond)) }

// FullRate returns the account's rate, in recipients per second.
func (p *Pacer) FullRate() float64 { return math.Float64frombits(p.full.Load()) }

// Rate returns the current rate, in recipients per second. It is below FullRate for a minute after the provider
// throttled.
func (p *Pacer) Rate() float64 { return p.last.Load().rate(p.FullRate(), p.now()) }

// Changed returns a channel that receives a value after this process or another one has cut the rate.
func (p *Pacer) Changed() <-chan struct{} { return p.changed }

// SetProcesses sets the number of processes that share the rate. A process fetches tokens for its share, and uses only
// that during a Redis outage.
func (p *Pacer) SetProcesses(n int) {
	p.share.Store(math.Float64bits(1 / float64(max(n, 1))))
}

// OwnRate returns this process's share of Rate, if all processes send equally.
func (p *Pacer) OwnRate() float64 { return p.Rate() * math.Float64frombits(p.share.Load()) }

// Wait waits until an email to this many recipients may be sent, or until ctx ends. Owed tokens are paid first.
// Providers count recipients, not messages.
func (p *Pacer) Wait(ctx context.Context, recipients int) error {
	select {
	case <-p.turn:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { p.turn <- struct{}{} }()

	for missing := recipients; ; {
		missing -= p.use(missing)
		if missing == 0 {
			return nil
		}
		if err := p.fetchOrWait(ctx); err != nil {
			p.Return(recipients - missing)
			return err
		}
	}
}

// use takes up to wanted of the available tokens, after it has paid the debt, and returns their number. It leaves
// expired tokens, which fetch returns to the bucket.
func (p *Pacer) use(wanted int) int {
	select {
	case <-p.returned: // the returned tokens are in the balance
	default:
	}
	if change := int(p.balance.Swap(0)); change < 0 {
		p.debt -= change
	} else {
		paid := min(p.debt, change)
		p.debt -= paid
		p.tokens += change - paid
	}
	if time.Since(p.fresh) >= tokenLife {
		return 0
	}
	paid := min(p.debt, p.tokens)
	p.debt -= paid
	p.tokens -= paid
	used := min(wanted, p.tokens)
	p.tokens -= used
	return used
}

// fetchOrWait fetches tokens, or waits until a token may be available. It returns early if tokens are returned meanwhile.
func (p *Pacer) fetchOrWait(ctx context.Context) error {
	wait, err := p.fetch(ctx)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		if !errors.Is(err, errAvoided) {
			p.avoid = time.Now().Add(fallbackFor)
		}
		return p.ownShare(ctx)
	case wait > 0:
		return p.pause(ctx, wait)
	}
	return nil
}

func (p *Pacer) pause(ctx context.Context, wait time.Duration) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-p.returned:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Return gives the tokens of an email that was not sent to the next email. It does not block.
func (p *Pacer) Return(recipients int) {
	if recipients <= 0 {
		return
	}
	p.balance.Add(int64(recipients))
	select {
	case p.returned <- struct{}{}:
	default:
	}
}

// Borrow records recipients that Wait did not include when it admitted the email. The next emails wait for them. It does
// not block.
//
// So an email may be sent before the tokens of its other recipients exist; the provider counts all of them at the time
// of the call anyway. At most a burst of emails is sent at once, and the fetches of all processes. With 11 recipients
// each, the maximum of an email, that is 1.65 times a second's rate, if each process has a share of 20/s or more. After
// that, this process waits as long as the rate requires. At a rate below 11/s such an email always exceeds a second's
// rate.
func (p *Pacer) Borrow(recipients int) { p.balance.Add(-int64(recipients)) }

// fetch exchanges the remaining tokens for new ones from Redis, or returns how long to wait for
// one.
func (p *Pacer) fetch(ctx context.Context) (time.Duration, error) {
	if time.Now().Before(p.avoid) {
		return 0, errAvoided
	}
	ctx, cancel := context.WithTimeout(ctx, redisTimeout)
	defer cancel()
	perSecond := p.Rate()
	accepted, age := p.accepted.Load(), ""
	if accepted > p.noted {
		age = strconv.FormatInt(max(p.now().UnixNano()-accepted, 0)/int64(time.Microsecond), 10)
	}
	answer, err := take.Run(ctx, p.redis, []string{key},
		perSecond, math.Max(1, perSecond*burst), math.Max(1, math.Floor(p.OwnRate()*fetchFraction)), p.tokens, age).Slice()
	if err != nil {
		return 0, err
	}
	if len(answer) != 6 {
		return 0, fmt.Errorf("take tokens: %d values", len(answer))
	}
	taken, _ := answer[0].(int64)
	wait, _ := answer[1].(int64)
	p.adoptShared(answer[2:])
	p.noted = accepted
	p.tokens, p.fresh = int(taken), time.Now()
	return time.Duration(wait) * time.Millisecond, nil
}

// ownShare waits for one token of this process's share of the rate.
func (p *Pacer) ownShare(ctx context.Context) error {
	p.own.SetLimit(rate.Limit(p.OwnRate()))
	if err := p.own.Wait(ctx); err != nil {
		// The limiter fails at once if the token would be available only after ctx ends.
		return fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
	}
	p.tokens, p.fresh = 1, time.Now()
	return nil
}
