// Package balance chooses an api for each request, as a load balancer does. The load generator of
// the chaos run uses it, and the SNS of its simulator.
package balance

import (
	"math/rand/v2"
	"sync"
	"time"
)

const (
	// Timeout is the timeout of a request.
	Timeout = 5 * time.Second
	// avoidance is how long an api gets no requests after Note reported a failure. A frozen api
	// would otherwise soon block all clients. After that a single request probes it.
	avoidance = 3 * time.Second
)

// Balancer chooses among apis. It is safe for concurrent use.
type Balancer struct {
	apis []string

	mu     sync.Mutex
	random *rand.Rand
	avoid  map[string]time.Time // apis that failed, and until when they are avoided
}

// New returns a Balancer for the apis' URLs.
func New(apis []string, seed uint64) *Balancer {
	return &Balancer{apis: apis, random: rand.New(rand.NewPCG(seed, 2)), avoid: make(map[string]time.Time)}
}

// Pick chooses a random api that is not avoided, or any if all are.
func (b *Balancer) Pick() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	for _, i := range b.random.Perm(len(b.apis)) {
		until, avoided := b.avoid[b.apis[i]]
		if avoided && now.Before(until) {
			continue
		}
		if avoided { // this request probes it, the others avoid it until the result
			b.avoid[b.apis[i]] = now.Add(Timeout + avoidance)
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
