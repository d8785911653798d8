package receiver

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"email-gateway/shared/service"
)

// Mode is how an endpoint responds.
type Mode string

const (
	Accept Mode = "accept"
	// Fail responds with 500.
	Fail Mode = "fail"
	// Hang does not respond until the outage ends, and then accepts.
	Hang Mode = "hang"
	// Cut closes the connection without a response.
	Cut Mode = "cut"
	// Lose accepts the event, and closes the connection before the response.
	Lose Mode = "lose"
)

// Outages lists the modes of outages.
func Outages() []Mode { return []Mode{Fail, Hang, Cut, Lose} }

const (
	// minOutage and maxOutage limit an outage; maxHang is longer than the gateway waits for a response
	// (15 s).
	minOutage, maxOutage, maxHang = time.Second, 8 * time.Second, 18 * time.Second
	// Between two outages an endpoint accepts for this long.
	minHealthy, maxHealthy = time.Second, 6 * time.Second
)

// Disturb lets each endpoint have one outage after the other until ctx ends. Four outages, which take
// 66 s at most, have the four modes in random order. The seed determines them.
func (s *Server) Disturb(ctx context.Context, seed uint64) {
	var disturbing sync.WaitGroup
	for i, e := range s.Endpoints {
		random := rand.New(rand.NewPCG(seed, 100+uint64(i)))
		disturbing.Go(func() { e.disturb(ctx, random) })
	}
	disturbing.Wait()
}

func (e *Endpoint) disturb(ctx context.Context, random *rand.Rand) {
	defer e.set(Accept)
	between := func(least, limit time.Duration) time.Duration {
		return least + time.Duration(random.Int64N(int64(limit-least)))
	}
	var left []Mode
	for service.Pause(ctx, between(minHealthy, maxHealthy)) == nil {
		if len(left) == 0 {
			left = Outages()
			random.Shuffle(len(left), func(i, j int) { left[i], left[j] = left[j], left[i] })
		}
		mode, longest := left[0], maxOutage
		if left = left[1:]; mode == Hang {
			longest = maxHang
		}
		e.set(mode)
		err := service.Pause(ctx, between(minOutage, longest))
		e.set(Accept)
		if err != nil {
			return
		}
	}
}

func (e *Endpoint) set(mode Mode) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if mode != Accept {
		e.outages[mode]++
	}
	e.mode = mode
	close(e.changed)
	e.changed = make(chan struct{})
}
