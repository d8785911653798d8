// Package balance chooses an api for each request, as a load balancer does. The tenants of the
// chaos run use it, and the SNS of its simulator.
package balance

import (
	"math/rand/v2"
	"sync"
	"time"
)

const (
	// Patience is how long a request waits for its answer.
	Patience = 5 * time.Second
	// avoidance is how long an api gets no requests after Note reported that it failed. A
	// frozen api would otherwise soon hold all the clients. Then a single request tries it.
	avoidance = 3 * time.Second
)

// Balancer chooses among apis. It is safe for concurrent use.
type Balancer struct {
	apis []string

	mu     sync.Mutex
	random *rand.Rand
	avoid  map[string]time.Time // apis that failed, and until when they are avoided
}

// New makes a Balancer over the apis' URLs.
func New(apis []string, seed uint64) *Balancer {
	return &Balancer{apis: apis, random: rand.New(rand.NewPCG(seed, 2)), avoid: make(map[string]time.Time)}
}

// Pick draws an api that is not avoided; when all are, any.
func (b *Balancer) Pick() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	for _, i := range b.random.Perm(len(b.apis)) {
		until, avoided := b.avoid[b.apis[i]]
		if avoided && now.Before(until) {
			continue
		}
		if avoided { // this request tries it, and the others wait for its result
			b.avoid[b.apis[i]] = now.Add(Patience + avoidance)
		}
		return b.apis[i]
	}
	return b.apis[b.random.IntN(len(b.apis))]
}

// Note records whether the api failed to answer.
func (b *Balancer) Note(api string, failed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if failed {
		b.avoid[api] = time.Now().Add(avoidance)
	} else {
		delete(b.avoid, api)
	}
}
