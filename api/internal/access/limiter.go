package access

import (
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Quota is the rate limit state of a key after a request.
type Quota struct {
	Allowed bool
	// Limit is the size of a burst, Remaining how many requests of it are left, Reset how long
	// until all are available again.
	Limit     int
	Remaining int
	Reset     time.Duration
	// RetryAfter is how long until the next request is allowed.
	RetryAfter time.Duration
}

// Limiter counts the requests of each key, and the items of batches, in a token bucket, separately in each api process.
type Limiter struct {
	max int

	mu      sync.Mutex
	buckets map[string]*rate.Limiter
}

// NewLimiter returns a Limiter for as many keys as a Directory caches.
func NewLimiter() *Limiter {
	return &Limiter{max: cached, buckets: make(map[string]*rate.Limiter)}
}

// Take counts one request of a key that may make perSecond requests, burst at once. perSecond 0
// is no limit; Quota.Limit is then 0.
func (l *Limiter) Take(key string, perSecond, burst int) Quota {
	if perSecond <= 0 {
		return Quota{Allowed: true}
	}
	now := time.Now()
	b := l.bucket(key, rate.Limit(perSecond), max(burst, 1), now)
	return quotaOf(b, b.AllowN(now, 1), 1, now, perSecond)
}

// TakeItems counts the items of a request beyond the first, which Take has counted: all n or, if it is not allowed,
// none. More items than a burst has are allowed if the bucket was full. They overdraw it, so that the key's further
// requests wait until its rate has paid for all of them: otherwise a key with a small burst could never send so many.
func (l *Limiter) TakeItems(key string, perSecond, burst, n int) Quota {
	if perSecond <= 0 {
		return Quota{Allowed: true}
	}
	now := time.Now()
	b := l.bucket(key, rate.Limit(perSecond), max(burst, 1), now)
	needed := min(n, b.Burst()-1)
	allowed := b.AllowN(now, needed)
	for rest := n - needed; allowed && rest > 0; {
		more := min(rest, b.Burst()) // a reservation cannot be larger
		b.ReserveN(now, more)
		rest -= more
	}
	return quotaOf(b, allowed, needed+1, now, perSecond)
}

// quotaOf describes a bucket that needs so many tokens for the next request like this one. After TakeItems it may be overdrawn.
func quotaOf(b *rate.Limiter, allowed bool, needed int, now time.Time, perSecond int) Quota {
	tokens := b.TokensAt(now)
	q := Quota{Allowed: allowed, Limit: b.Burst(), Remaining: int(max(tokens, 0))}
	q.Reset = wait(float64(q.Limit)-tokens, perSecond)
	if !allowed {
		q.RetryAfter = wait(float64(needed)-tokens, perSecond)
	}
	return q
}

func wait(tokens float64, perSecond int) time.Duration {
	return time.Duration(tokens / float64(perSecond) * float64(time.Second))
}

// bucket finds or creates the key's bucket and applies the current limit.
func (l *Limiter) bucket(key string, limit rate.Limit, burst int, now time.Time) *rate.Limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	b, ok := l.buckets[key]
	if !ok {
		if len(l.buckets) >= l.max {
			l.evict(now)
		}
		b = rate.NewLimiter(limit, burst)
		l.buckets[key] = b
	}
	if b.Limit() != limit {
		b.SetLimitAt(now, limit)
	}
	if b.Burst() != burst {
		b.SetBurstAt(now, burst)
	}
	return b
}

// sample is how many buckets evict examines: enough to find one that is nearly full, few
// enough to do it for each request with a new key.
const sample = 64

// evict removes a bucket. A full one equals a new one, so it removes the fullest of a
// sample.
func (l *Limiter) evict(now time.Time) {
	var fullest string
	least, seen := math.Inf(1), 0
	for key, b := range l.buckets {
		if missing := float64(b.Burst()) - b.TokensAt(now); missing < least {
			fullest, least = key, missing
		}
		if seen++; seen == sample || least <= 0 {
			break
		}
	}
	delete(l.buckets, fullest)
}
