package e2e_test

import (
	"bytes"
	"net"
	"net/url"
	"sync/atomic"
	"testing"
)

// lossyProxy is a TCP proxy between a program and a service. While it is armed, it forwards every request that
// contains a text and drops the response: the service has executed the request, and the connection of the program
// ends.
type lossyProxy struct {
	listener net.Listener
	upstream string
	text     []byte
	losing   atomic.Bool
	lost     atomic.Int64
}

// startLossyProxy returns the proxy and the service's URL through it.
func startLossyProxy(t *testing.T, service, text string) (*lossyProxy, string) {
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
	p := &lossyProxy{listener: listener, upstream: u.Host, text: []byte(text)}
	go p.accept()
	u.Host = listener.Addr().String()
	return p, u.String()
}

func (p *lossyProxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		go p.join(client)
	}
}

// join forwards one connection until one of its ends is closed.
func (p *lossyProxy) join(client net.Conn) {
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

// pass copies data while forwarding is allowed and both connections are open.
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
