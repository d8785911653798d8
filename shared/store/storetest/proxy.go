package storetest

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
)

// Proxy is a proxy between a store and Postgres that breaks connections on purpose.
type Proxy struct {
	URL string // of the database, through the proxy

	listener net.Listener
	upstream string

	mu      sync.Mutex
	onAns   func() bool // called when Postgres answers; false closes the connection instead
	conns   []net.Conn
	commits int  // the answer to this COMMIT, counted from now, is the last one; 0 = off
	ending  bool // that COMMIT was sent
	listens int  // how many LISTEN were refused, and one more; 0 = off
}

// NewProxy starts a proxy in front of the database. It stops when the test ends.
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

// Restart accepts connections again after Stop, on the same address.
func (p *Proxy) Restart(tb testing.TB) {
	tb.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.commits, p.ending = 0, false
	_ = p.listener.Close() // unless Stop has closed it
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
		var last atomic.Bool
		go func() {
			_, _ = io.Copy(server, listens{io.TeeReader(client, commits{p, &last}), p})
			_ = server.Close()
		}()
		go p.answer(client, server, &last)
	}
}

// commits reads what a client sends, and sets last at the COMMIT of CutAfterCommit.
type commits struct {
	proxy *Proxy
	last  *atomic.Bool
}

func (c commits) Write(b []byte) (int, error) {
	c.proxy.mu.Lock()
	defer c.proxy.mu.Unlock()
	if c.proxy.commits > 0 && bytes.Contains(b, []byte("COMMIT\x00")) {
		if c.proxy.commits--; c.proxy.commits == 0 {
			c.proxy.ending = true
			c.last.Store(true)
		}
	}
	return len(b), nil
}

// listens reads what a client sends, and makes Postgres refuse LISTEN during RefuseListens.
type listens struct {
	io.Reader
	proxy *Proxy
}

func (l listens) Read(b []byte) (int, error) {
	n, err := l.Reader.Read(b)
	l.proxy.mu.Lock()
	defer l.proxy.mu.Unlock()
	if at := bytes.Index(b[:n], []byte("LISTEN ")); at >= 0 && l.proxy.listens > 0 {
		l.proxy.listens++
		copy(b[at:], "LISTEX ") // a syntax error of the same length
	}
	return n, err
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

// answer forwards what Postgres sends. After the answer to the COMMIT of CutAfterCommit it closes all connections, and the
// proxy accepts no others.
func (p *Proxy) answer(client, server net.Conn, last *atomic.Bool) {
	defer client.Close()
	defer server.Close()
	b := make([]byte, 64<<10)
	for {
		n, err := server.Read(b)
		if err != nil {
			return
		}
		committed := last.Load() // before the client has the answer, and sends the next statement
		p.mu.Lock()
		pass := p.onAns
		p.mu.Unlock()
		if pass != nil && !pass() {
			return
		}
		if _, err := client.Write(b[:n]); err != nil {
			return
		}
		if committed {
			p.endAfterCommit()
			return
		}
	}
}

func (p *Proxy) endAfterCommit() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ending { // not restarted meanwhile
		p.ending = false
		_ = p.listener.Close()
		p.closeConns()
	}
}

// CutAfterCommit closes all connections as soon as a client has the answer to the n-th COMMIT from now on, and accepts no
// others until Restart.
func (p *Proxy) CutAfterCommit(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.commits = n
}

// Cut closes the connection on each of the next answers of Postgres, which follow its commits, the given number of
// times.
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

// CutAnswer closes the connection on the n-th answer of Postgres from now on.
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

// CutAndStop closes the connection on Postgres's next answer and accepts no others.
func (p *Proxy) CutAndStop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.onAns = func() bool { p.Stop(); return false }
}

// DropResponses drops everything that Postgres sends from now on, and keeps the connections open.
func (p *Proxy) DropResponses(tb testing.TB) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.onAns = func() bool { <-tb.Context().Done(); return false }
}

// Stop accepts no more connections. Existing ones continue.
func (p *Proxy) Stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.listener.Close()
}

// CutAll closes all connections.
func (p *Proxy) CutAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closeConns()
}

func (p *Proxy) closeConns() {
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.conns = nil
}
