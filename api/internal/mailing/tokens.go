package mailing

import (
	"context"
	"crypto/rand"
	"log/slog"
	"time"

	"email-gateway/shared/service"
)

// readyTokens is the size of the pool.
const readyTokens = 1000

// Tokens is a pool of verification tokens: the value of {{token}}, one per entry. The api's main
// function runs it to fill the pool in the background. Take never blocks: a large mailing empties
// the pool faster than it is filled, and the remaining tokens are generated on demand.
type Tokens struct {
	*service.Loop
	ready chan string
	taken chan struct{} // woken by Take
}

// NewTokens returns an empty pool, which fills once it is started.
func NewTokens(log *slog.Logger) *Tokens {
	t := &Tokens{ready: make(chan string, readyTokens), taken: make(chan struct{}, 1)}
	t.Loop = service.NewLoop(service.LoopParams{Log: log, Interval: time.Second, Wake: t.taken, RunOnce: t.fill})
	return t
}

// Take returns a unique token: 26 letters and digits, at least 128 random bits, URL-safe.
func (t *Tokens) Take() string {
	if len(t.ready) <= readyTokens/2 {
		t.wake()
	}
	select {
	case token := <-t.ready:
		return token
	default:
		return rand.Text()
	}
}

// Available returns the number of tokens in the pool.
func (t *Tokens) Available() int { return len(t.ready) }

func (t *Tokens) wake() {
	select {
	case t.taken <- struct{}{}:
	default: // one is pending already
	}
}

func (t *Tokens) fill(ctx context.Context) (more bool, err error) {
	for ctx.Err() == nil {
		select {
		case t.ready <- rand.Text():
		default:
			return false, nil
		}
	}
	return false, nil
}
