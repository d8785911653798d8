package clientip

import (
	"net/netip"
	"sync"
	"time"
)

const (
	// mistakes are what an address may get wrong at once: a program that was given a wrong
	// key tries a few times, and a person mistypes a password.
	mistakes = 20
	// forgiveEvery is how long until it may get one more wrong.
	forgiveEvery = 3 * time.Second
	// watched bounds the memory: some 2 MB.
	watched = 10_000
	// sample is how many addresses are looked at to find one to forget.
	sample = 64
)

// Guard limits wrong keys and passwords per address, IPv6 per /64, which is what one
// customer of a provider has. It is asked only about requests that were wrong: a right key
// is never refused because of what others behind the same address do.
type Guard struct {
	mu      sync.Mutex
	buckets map[netip.Prefix]bucket
}

// bucket is how many mistakes were left at a time.
type bucket struct {
	left float64
	at   time.Time
}

// leftAt is how many are left by now.
func (b bucket) leftAt(now time.Time) float64 {
	return min(mistakes, b.left+float64(now.Sub(b.at))/float64(forgiveEvery))
}

// NewGuard makes a Guard that has seen nobody.
func NewGuard() *Guard { return &Guard{buckets: make(map[netip.Prefix]bucket)} }

// Wrong notes a mistake. A retry greater than 0 says that there were too many: the client
// may try again after it.
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

// Over says whether the address has made too many mistakes, and notes none.
func (g *Guard) Over(client netip.Addr) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	b, ok := g.buckets[network(client)]
	return ok && b.leftAt(time.Now()) < 1
}

// forget makes room. A full bucket is like a new one, so the fullest of a few loses least.
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

// network is what counts as one client.
func network(client netip.Addr) netip.Prefix {
	bits := client.BitLen()
	if client.Is6() {
		bits = 64
	}
	of, err := client.Prefix(bits)
	if err != nil { // no address: all of them are one client
		return netip.Prefix{}
	}
	return of
}
