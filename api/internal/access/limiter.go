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

// Limiter counts the requests of each key in a token bucket, separately in each api process.
type Limiter struct {
	max int

	mu      sync.Mutex
	buckets map[string]*rate.Limiter
}

// NewLimiter creates a Limiter for as many keys as a Directory caches.
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
	q := Quota{Allowed: b.AllowN(now, 1), Limit: b.Burst()}
	left := max(b.TokensAt(now), 0)
	q.Remaining = int(left)
	q.Reset = wait(float64(q.Limit)-left, perSecond)
	if !q.Allowed {
		q.RetryAfter = wait(1-left, perSecond)
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
			l.makeRoom(now)
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

// sample is how many buckets makeRoom examines: enough to find one that is nearly full, few
// enough to do it for each request with a new key.
const sample = 64

// makeRoom removes a bucket. A full one equals a new one, so it removes the fullest of a
// sample.
func (l *Limiter) makeRoom(now time.Time) {
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
