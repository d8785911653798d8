package clientip

import (
	"net/netip"
	"sync"
	"time"
)

const (
	// mistakes is the burst of failures per address: a program with a wrong key retries a few
	// times, and a person mistypes a password.
	mistakes = 20
	// forgiveEvery is the interval after which one more failure is allowed.
	forgiveEvery = 3 * time.Second
	// watched bounds the memory to some 2 MB.
	watched = 10_000
	// sample is how many entries are compared to choose one to evict.
	sample = 64
)

// Guard limits wrong keys and passwords per address, IPv6 per /64, which is usually one customer.
// Only failed requests are checked: a right key is never rejected because of other clients behind
// the same address.
type Guard struct {
	mu      sync.Mutex
	buckets map[netip.Prefix]bucket
}

// bucket is the number of failures left at a time.
type bucket struct {
	left float64
	at   time.Time
}

// leftAt is the number of failures left now.
func (b bucket) leftAt(now time.Time) float64 {
	return min(mistakes, b.left+float64(now.Sub(b.at))/float64(forgiveEvery))
}

// NewGuard returns an empty Guard.
func NewGuard() *Guard { return &Guard{buckets: make(map[netip.Prefix]bucket)} }

// Wrong records a failure. A retry greater than 0 means that there were too many: the client may
// try again after it.
func (g *Guard) Wrong(client netip.Addr) (retry time.Duration) {
	of, now := network(client), time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	b, ok := g.buckets[of]
	left := float64(mistakes)
	if ok {
		left = b.leftAt(now)
	} else if len(g.buckets) >= watched {
		g.forget(now)
	}
	if left < 1 {
		return time.Duration((1 - left) * float64(forgiveEvery))
	}
	g.buckets[of] = bucket{left: left - 1, at: now}
	return 0
}

// Over reports whether the address has had too many failures, without recording one.
func (g *Guard) Over(client netip.Addr) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	b, ok := g.buckets[network(client)]
	return ok && b.leftAt(time.Now()) < 1
}

// forget evicts an entry. A full bucket is like a new one, so it evicts the fullest of a sample.
func (g *Guard) forget(now time.Time) {
	var victim netip.Prefix
	most, seen := -1.0, 0
	for of, b := range g.buckets {
		if left := b.leftAt(now); left > most {
			victim, most = of, left
		}
		if seen++; seen == sample || most >= mistakes {
			break
		}
	}
	delete(g.buckets, victim)
}

// network is the unit that counts as one client.
func network(client netip.Addr) netip.Prefix {
	bits := client.BitLen()
	if client.Is6() {
		bits = 64
	}
	of, err := client.Prefix(bits)
	if err != nil { // no address: all such clients count as one
		return netip.Prefix{}
	}
	return of
}
