package webhook_test

import (
	"crypto/x509"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	format "email-gateway/shared/standardwebhook"
	"email-gateway/worker/internal/webhook"
)

// lossyListener accepts connections that can lose all packets in both directions.
type lossyListener struct {
	net.Listener
	mu       sync.Mutex
	accepted []*lossyConn
}

type lossyConn struct {
	net.Conn
	lost atomic.Bool
}

func (l *lossyListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	lossy := &lossyConn{Conn: c}
	l.accepted = append(l.accepted, lossy)
	return lossy, nil
}

// lose makes the connections accepted until now lose everything, and returns their number.
func (l *lossyListener) lose() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.accepted {
		c.lost.Store(true)
	}
	return len(l.accepted)
}

func (c *lossyConn) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		if err != nil || !c.lost.Load() {
			return n, err
		}
	}
}

func (c *lossyConn) Write(b []byte) (int, error) {
	if c.lost.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// An HTTP/2 connection that loses its packets, because the receiver's host is gone, costs one attempt. The next one uses a new
// connection.
func TestSender_LostConnection(t *testing.T) {
	t.Parallel()
	protocol := make(chan string, 10)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { protocol <- r.Proto }))
	listener := &lossyListener{Listener: server.Listener}
	server.Listener, server.EnableHTTP2 = listener, true
	server.StartTLS()
	defer server.Close()
	pool := x509.NewCertPool()
	pool.AddCert(server.Certificate())
	sender := webhook.NewSender(webhook.SenderParams{AllowPrivate: true, RootCAs: pool, Timeout: 9 * time.Second})
	defer sender.Close()
	m := webhook.Message{URL: server.URL, ID: "evt_1", Body: []byte(`{}`), Secrets: []format.Secret{secret(t)}}
	if o, err := sender.Send(t.Context(), m); err != nil || !o.Delivered || <-protocol != "HTTP/2.0" {
		t.Fatalf("%+v, %v", o, err)
	}
	if n := listener.lose(); n != 1 {
		t.Fatalf("%d connections", n)
	}
	if o, err := sender.Send(t.Context(), m); err != nil || o.Delivered {
		t.Fatalf("%+v, %v", o, err)
	}
	if o, err := sender.Send(t.Context(), m); err != nil || !o.Delivered {
		t.Errorf("the attempt after the lost one: %+v, %v", o, err)
	}
}
