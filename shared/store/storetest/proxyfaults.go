package storetest

import (
	"sync"
	"testing"
)

// Commit is what the driver sends to commit a transaction.
const Commit = "Q\x00\x00\x00\x0bCOMMIT\x00"

// Stop resets new connections. Existing ones continue. The proxy keeps its port, so the dial succeeds, unlike with a
// Postgres that has ended.
func (p *Proxy) Stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped = true
}

// Stopped reports whether new connections are reset: after Stop, or because CutAfter has cut the connections.
func (p *Proxy) Stopped() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stopped
}

// Restart accepts connections again, and ends CutAfter.
func (p *Proxy) Restart() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped, p.ending, p.last = false, false, expected{}
}

// CutAll closes all connections.
func (p *Proxy) CutAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closeConns()
}

// CutAfter closes all connections as soon as a client has the answer to the n-th statement that contains text, from now on, and
// accepts no others until Restart. Within a transaction that is the answer to its end.
func (p *Proxy) CutAfter(text string, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = expected{[]byte(text), n}
}

// Cut closes the connection on each of the next answers of Postgres, which follow its commits, the given number of
// times.
func (p *Proxy) Cut(times int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.onAnswer = func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		times--
		return times < 0
	}
}

// CutAnswer closes the connection on the n-th answer of Postgres from now on.
func (p *Proxy) CutAnswer(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.onAnswer = func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		n--
		return n != 0
	}
}

// CutAndStop closes the connection on Postgres's next answer and accepts no others.
func (p *Proxy) CutAndStop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.onAnswer = func() bool { p.Stop(); return false }
}

// LoseAnswers drops the answers to the next n statements that contain text, each with its connection: Postgres has executed the
// statement. It returns how many of the previous call are left.
func (p *Proxy) LoseAnswers(text string, n int) (left int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	left = p.lose.left
	p.lose = expected{[]byte(text), n}
	return left
}

// DropResponses drops everything that Postgres sends from now on, and keeps the connections open.
func (p *Proxy) DropResponses(tb testing.TB) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.onAnswer = func() bool { <-tb.Context().Done(); return false }
}

// Freeze keeps the connections open and forwards nothing to Postgres until thaw is called.
func (p *Proxy) Freeze() (thaw func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	frozen := make(chan struct{})
	p.frozen = frozen
	return sync.OnceFunc(func() { close(frozen) })
}

// RefuseListens makes Postgres refuse LISTEN until AllowListens, as a hot standby does.
func (p *Proxy) RefuseListens() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listens = 1
}

// RefusedListens returns how many LISTEN were refused since RefuseListens.
func (p *Proxy) RefusedListens() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.listens - 1
}

// AllowListens ends RefuseListens.
func (p *Proxy) AllowListens() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listens = 0
}
