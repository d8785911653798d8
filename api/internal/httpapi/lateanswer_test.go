package httpapi_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"email-gateway/api/internal/httpapi"
)

// slowBucket stores an object more slowly than the server's write timeout allows.
type slowBucket struct {
	httpapi.Bucket
	stored *atomic.Int64 // when the last object was stored
}

const slowBucketTime = 500 * time.Millisecond

func (b slowBucket) Put(ctx context.Context, key string, r io.Reader) error {
	<-time.After(slowBucketTime)
	defer func() { b.stored.Store(time.Now().UnixNano()) }()
	return b.Bucket.Put(ctx, key, r)
}

// deadlineListener records when the write deadline was set in whose time a connection has written.
type deadlineListener struct {
	net.Listener
	wrote atomic.Int64
}

func (l *deadlineListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	return &deadlineConn{Conn: conn, listener: l}, err
}

type deadlineConn struct {
	net.Conn
	listener *deadlineListener
	set      atomic.Int64
}

func (c *deadlineConn) SetWriteDeadline(t time.Time) error {
	c.set.Store(time.Now().UnixNano())
	return c.Conn.SetWriteDeadline(t)
}

func (c *deadlineConn) Write(p []byte) (int, error) {
	c.listener.wrote.Store(c.set.Load())
	return c.Conn.Write(p)
}

// However long a storage takes, an accepted request is answered: the time to write the response begins when it is written.
func TestAnswer_AfterSlowStorage(t *testing.T) {
	t.Parallel()
	stored := &atomic.Int64{}
	g := start(t, func(p *httpapi.Params) { p.Bucket = slowBucket{p.Bucket, stored} })
	server := httptest.NewUnstartedServer(g.Handler)
	server.Config.WriteTimeout = slowBucketTime / 5
	listener := &deadlineListener{Listener: server.Listener}
	server.Listener = listener
	server.Start()
	defer server.Close()
	g.URL = server.URL
	for name, tt := range map[string]struct {
		request call
		want    int
	}{
		"send": {call{Path: "/v1/email/send", Body: emailBody(withFiles(attached("a.pdf", "application/pdf", pdf)))}, http.StatusAccepted},
		"large send": {call{Path: "/v1/email/send", Body: emailBody(withFiles(
			attached("a.txt", "text/plain", strings.Repeat("a", 3<<20)), attached("b.txt", "text/plain", "b")))}, http.StatusAccepted},
		"file": {call{Path: "/v1/files", Body: xml, Header: map[string]string{"Content-Type": "application/xml"}}, http.StatusCreated},
	} {
		tt.request.Method = http.MethodPost
		r, err := g.try(t, tt.request)
		if err != nil || r.Status != tt.want {
			t.Errorf("%s: %d %s %v", name, r.Status, r.Body, err)
		}
		if set, ready := listener.wrote.Load(), stored.Load(); set < ready {
			t.Errorf("%s: the write deadline was set %s before the content was stored", name, time.Duration(ready-set))
		}
	}
}
