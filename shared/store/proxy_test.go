package store_test

import (
	"io"
	"net"
	"net/url"
	"sync"
	"testing"

	"email-gateway/shared/store/storetest"
)

// proxy stands between a store and Postgres and breaks connections on purpose.
type proxy struct {
	url      string
	listener net.Listener
	upstream string

	mu    sync.Mutex
	onAns func() bool // asked when Postgres answers: false ends the connection instead
	conns []net.Conn
}

func newProxy(t *testing.T, d storetest.Database) *proxy {
	t.Helper()
	u, err := url.Parse(d.URL)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: listener, upstream: u.Host}
	u.Host = listener.Addr().String()
	p.url = u.String()
	go p.accept()
	t.Cleanup(p.stop)
	return p
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.upstream)
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

func (p *proxy) answer(client, server net.Conn) {
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

// cut ends connections from now on as soon as Postgres has answered, which it does
// after its commit: at most so many times.
func (p *proxy) cut(times int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.onAns = func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		times--
		return times < 0
	}
}

// cutAnswer ends the connection on which Postgres gives its n-th answer from now on.
func (p *proxy) cutAnswer(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.onAns = func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		n--
		return n != 0
	}
}

// cutAndStop ends the connection on Postgres's next answer and takes no others.
func (p *proxy) cutAndStop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.onAns = func() bool { p.stop(); return false }
}

// hush lets nothing of Postgres's through from now on, and keeps connections open.
func (p *proxy) hush(t *testing.T) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.onAns = func() bool { <-t.Context().Done(); return false }
}

func (p *proxy) stop() { _ = p.listener.Close() }

// cutAll ends all connections there are.
func (p *proxy) cutAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.conns = nil
}
