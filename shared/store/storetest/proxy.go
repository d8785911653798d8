package storetest

import (
	"context"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
)

// Proxy is a proxy between a store and Postgres that breaks connections on purpose.
type Proxy struct {
	URL string // of the database, through the proxy

	listener net.Listener
	upstream string

	mu    sync.Mutex
	onAns func() bool // asked when Postgres answers: false ends the connection instead
	conns []net.Conn
}

// NewProxy starts a proxy before the database. It ends with the test.
func NewProxy(tb testing.TB, d Database) *Proxy {
	tb.Helper()
	u, err := url.Parse(d.URL)
	if err != nil {
		tb.Fatal(err)
	}
	var config net.ListenConfig
	listener, err := config.Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	p := &Proxy{listener: listener, upstream: u.Host}
	u.Host = listener.Addr().String()
	p.URL = u.String()
	go p.accept(tb.Context(), listener)
	tb.Cleanup(p.Stop)
	return p
}

// Restart takes connections again after Stop, on the same address.
func (p *Proxy) Restart(tb testing.TB) {
	tb.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(tb.Context(), "tcp", p.listener.Addr().String())
	if err != nil {
		tb.Fatal(err)
	}
	p.listener = listener
	go p.accept(tb.Context(), listener)
}

func (p *Proxy) accept(ctx context.Context, listener net.Listener) {
	var dialer net.Dialer
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		server, err := dialer.DialContext(ctx, "tcp", p.upstream)
		if err != nil {
			_ = client.Close()
			return
		}
		p.mu.Lock()
		p.conns = append(p.conns, client, server)
		p.mu.Unlock()
		go func() {
			_, _ = io.Copy(server, client)
			_ = server.Close()
		}()
		go p.answer(client, server)
	}
}

func (p *Proxy) answer(client, server net.Conn) {
	defer client.Close()
	defer server.Close()
	b := make([]byte, 64<<10)
	for {
		n, err := server.Read(b)
		if err != nil {
			return
		}
		p.mu.Lock()
		pass := p.onAns
		p.mu.Unlock()
		if pass != nil && !pass() {
			return
		}
		if _, err := client.Write(b[:n]); err != nil {
			return
		}
	}
}

// Cut ends connections from now on as soon as Postgres has answered, which it does
// after its commit: at most so many times.
func (p *Proxy) Cut(times int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.onAns = func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		times--
		return times < 0
	}
}

// CutAnswer ends the connection on which Postgres gives its n-th answer from now on.
func (p *Proxy) CutAnswer(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.onAns = func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		n--
		return n != 0
	}
}

// CutAndStop ends the connection on Postgres's next answer and takes no others.
func (p *Proxy) CutAndStop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.onAns = func() bool { p.Stop(); return false }
}

// Hush drops everything that Postgres sends from now on, and keeps connections open.
func (p *Proxy) Hush(tb testing.TB) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.onAns = func() bool { <-tb.Context().Done(); return false }
}

// Stop takes no connections any more; those there are go on.
func (p *Proxy) Stop() { _ = p.listener.Close() }

// CutAll ends all connections there are.
func (p *Proxy) CutAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.conns = nil
}
