package e2e_test

import (
	"bytes"
	"net"
	"net/url"
	"sync/atomic"
	"testing"
)

// losingProxy stands between a program and a service. While it is told to, it lets every
// request through that holds a text and loses the answer: the service has done what it
// was asked, and the program sees its connection end.
type losingProxy struct {
	listener net.Listener
	upstream string
	text     []byte
	losing   atomic.Bool
	lost     atomic.Int64
}

// startLosingProxy returns the proxy and the service's URL by way of it.
func startLosingProxy(t *testing.T, service, text string) (*losingProxy, string) {
	t.Helper()
	u, err := url.Parse(service)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	p := &losingProxy{listener: listener, upstream: u.Host, text: []byte(text)}
	go p.accept()
	u.Host = listener.Addr().String()
	return p, u.String()
}

func (p *losingProxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		go p.join(client)
	}
}

// join carries one connection until one of its ends is closed.
func (p *losingProxy) join(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", p.upstream)
	if err != nil {
		return
	}
	var lose atomic.Bool
	go func() {
		defer server.Close()
		pass(server, client, func(request []byte) bool {
			if p.losing.Load() && bytes.Contains(request, p.text) {
				lose.Store(true)
			}
			return true
		})
	}()
	pass(client, server, func([]byte) bool {
		if lose.Load() {
			p.lost.Add(1)
		}
		return !lose.Load()
	})
}

// pass copies as long as it may and the connections last.
func pass(to, from net.Conn, may func([]byte) bool) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil || !may(buffer[:n]) {
			return
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}
