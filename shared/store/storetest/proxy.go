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

// Proxy is a proxy between programs and Postgres that breaks connections on purpose: see proxyfaults.go.
type Proxy struct {
	URL string // of the database, through the proxy

	listener net.Listener
	upstream string

	mu       sync.Mutex
	conns    []net.Conn
	stopped  bool          // new connections are reset
	frozen   chan struct{} // until it is closed, nothing is forwarded to Postgres; nil = not frozen
	onAnswer func() bool   // called when Postgres answers; false closes the connection instead
	lose     expected      // statements whose answers are lost
	last     expected      // the answer to the last of these statements is the last one
	ending   bool          // that statement was sent
	listens  int           // how many LISTEN were refused, and one more; 0 = off
}

// expected is a number of statements that contain a text.
type expected struct {
	text []byte
	left int
}

// meets counts a statement that contains the text.
func (e *expected) meets(sent []byte) bool {
	if e.left == 0 || !bytes.Contains(sent, e.text) {
		return false
	}
	e.left--
	return true
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
	go p.accept(tb.Context())
	tb.Cleanup(func() {
		p.Stop()
		p.CutAll()
		_ = listener.Close()
	})
	return p
}

func (p *Proxy) accept(ctx context.Context) {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		go p.forward(ctx, client)
	}
}

// connection is a connection of a program, and the one to Postgres that belongs to it.
type connection struct {
	client, server net.Conn
	lost           atomic.Bool // the answer is lost, and the connection with it
	last           atomic.Bool // after the answer all connections are closed
}

// forward forwards what a program sends.
func (p *Proxy) forward(ctx context.Context, client net.Conn) {
	defer client.Close()
	p.awaitThaw()
	if p.Stopped() {
		reset(client)
		return
	}
	var dialer net.Dialer
	server, err := dialer.DialContext(ctx, "tcp", p.upstream)
	if err != nil {
		return
	}
	defer server.Close()
	c := &connection{client: client, server: server}
	if !p.keep(c) {
		reset(client)
		return
	}
	go p.forwardAnswers(c)
	b := make([]byte, 256<<10)
	for {
		n, err := client.Read(b)
		if err != nil {
			return
		}
		p.awaitThaw()
		p.inspect(c, b[:n])
		if _, err := server.Write(b[:n]); err != nil {
			return
		}
	}
}

// reset makes Close send RST.
func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
}

func (p *Proxy) awaitThaw() {
	p.mu.Lock()
	frozen := p.frozen
	p.mu.Unlock()
	if frozen != nil {
		<-frozen
	}
}

// keep reports whether the proxy accepts connections.
func (p *Proxy) keep(c *connection) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.stopped {
		p.conns = append(p.conns, c.client, c.server)
	}
	return !p.stopped
}

// inspect reads what a program sends, and makes Postgres refuse LISTEN during RefuseListens.
func (p *Proxy) inspect(c *connection, sent []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !c.lost.Load() && p.lose.meets(sent) {
		c.lost.Store(true)
	}
	if p.last.meets(sent) && p.last.left == 0 {
		p.ending = true
		c.last.Store(true)
	}
	if at := bytes.Index(sent, []byte("LISTEN ")); at >= 0 && p.listens > 0 {
		p.listens++
		copy(sent[at:], "LISTEX ") // a syntax error of the same length
	}
}

// readyForQuery ends the answer to a statement that is not in a transaction, and to COMMIT.
var readyForQuery = []byte{'Z', 0, 0, 0, 5, 'I'}

// forwardAnswers forwards what Postgres sends. A lost answer is read to its end first, so that Postgres has finished.
func (p *Proxy) forwardAnswers(c *connection) {
	defer c.client.Close()
	defer c.server.Close()
	b := make([]byte, 256<<10)
	for {
		n, err := c.server.Read(b)
		if err != nil {
			return
		}
		ends := c.last.Load() && bytes.HasSuffix(b[:n], readyForQuery) // before the client has the answer, and sends the next statement
		if c.lost.Load() {
			readAnswer(c.server, b[:n])
			return
		}
		p.mu.Lock()
		pass := p.onAnswer
		p.mu.Unlock()
		if pass != nil && !pass() {
			return
		}
		if _, err := c.client.Write(b[:n]); err != nil {
			return
		}
		if ends {
			p.end()
			return
		}
	}
}

// readAnswer reads the rest of an answer.
func readAnswer(server io.Reader, seen []byte) {
	b := make([]byte, 64<<10)
	for !bytes.HasSuffix(seen, readyForQuery) {
		n, err := server.Read(b)
		if err != nil {
			return
		}
		seen = append(bytes.Clone(seen), b[:n]...)
	}
}

// end closes all connections after the last answer of CutAfter.
func (p *Proxy) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ending { // not restarted meanwhile
		p.ending, p.stopped = false, true
		p.closeConns()
	}
}

func (p *Proxy) closeConns() {
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.conns = nil
}
