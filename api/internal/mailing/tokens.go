package mailing

import (
	"context"
	"crypto/rand"
	"log/slog"
	"time"

	"email-gateway/shared/service"
)

// readyTokens is how many verification tokens are kept ready.
const readyTokens = 1000

// Tokens is the pool of verification tokens: the value of {{token}}, one per entry. It
// is a part of the api's main function, which fills it in the background. Taking one
// never waits: a large mailing empties the pool faster than it is filled and makes the
// rest of its tokens itself.
type Tokens struct {
	*service.Loop
	ready chan string
	taken chan struct{} // woken by Take
}

// NewTokens makes an empty pool, which fills up once it is started.
func NewTokens(log *slog.Logger) *Tokens {
	t := &Tokens{ready: make(chan string, readyTokens), taken: make(chan struct{}, 1)}
	t.Loop = service.NewLoop(service.LoopParams{Log: log, Interval: time.Second, Wake: t.taken, RunOnce: t.fill})
	return t
}

// Take returns a token that nobody else has: 26 letters and digits, at least 128 random
// bits, safe in a URL.
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

// Available is how many tokens are ready.
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
