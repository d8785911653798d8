package httpapi_test

import (
	"bytes"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
)

// faultProxy is a proxy between the api and Postgres that can interrupt connections.
type faultProxy struct {
	URL    string // of the same database, through the proxy
	listen net.Listener
	server string

	mu    sync.Mutex
	conns map[net.Conn]struct{}
	down  bool
	// lose is the text of a statement whose response is dropped, together with the
	// connection: the server has executed the statement.
	lose []byte
	lost int // how many times more; 0 = off
	// last: all connections are cut when the answer to a statement that contains it is forwarded; nil = off.
	last []byte
	// frozen: while the channel is open, connections stay open and nothing is forwarded.
	frozen chan struct{}
}

func newFaultProxy(tb testing.TB, databaseURL string) *faultProxy {
	tb.Helper()
	u, err := url.Parse(databaseURL)
	if err != nil {
		tb.Fatal(err)
	}
	listen, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	w := &faultProxy{listen: listen, server: u.Host, conns: make(map[net.Conn]struct{})}
	u.Host = listen.Addr().String()
	w.URL = u.String()
	go w.serve()
	tb.Cleanup(func() {
		_ = listen.Close()
		w.cut()
	})
	return w
}

func (w *faultProxy) serve() {
	for {
		client, err := w.listen.Accept()
		if err != nil {
			return
		}
		go w.carry(client)
	}
}

// cut closes all connections and rejects new ones.
func (w *faultProxy) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = true
	for c := range w.conns {
		_ = c.Close()
	}
}

// freeze stops forwarding until the thaw.
func (w *faultProxy) freeze() (thaw func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	frozen := make(chan struct{})
	w.frozen = frozen
	return sync.OnceFunc(func() { close(frozen) })
}

func (w *faultProxy) awaitThaw() {
	w.mu.Lock()
	frozen := w.frozen
	w.mu.Unlock()
	if frozen != nil {
		<-frozen
	}
}

func (w *faultProxy) restore() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down, w.last = false, nil
}

// dropResponses drops the responses to the next n statements that contain text. It returns how many of the
// previous call are still pending.
func (w *faultProxy) dropResponses(text string, n int) (left int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	left = w.lost
	w.lose, w.lost = []byte(text), n
	return left
}

// cutAfter cuts all connections once the client has the answer to the next statement that contains text, and rejects new
// ones.
func (w *faultProxy) cutAfter(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last = []byte(text)
}

// isCut reports whether the connections are cut.
func (w *faultProxy) isCut() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.down
}

func (w *faultProxy) isLast(statement []byte) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last != nil && bytes.Contains(statement, w.last)
}

func (w *faultProxy) carry(client net.Conn) {
	defer client.Close()
	w.awaitThaw()
	server, err := net.Dial("tcp", w.server)
	if err != nil {
		return
	}
	defer server.Close()
	if !w.keep(client, server) {
		return
	}
	mute := make(chan struct{})
	var last atomic.Bool
	go w.back(client, server, mute, &last)
	buffer := make([]byte, 256<<10)
	muted := false
	for {
		n, err := client.Read(buffer)
		if err != nil {
			return
		}
		w.awaitThaw()
		if !muted && w.dropsResponse(buffer[:n]) {
			muted = true
			close(mute)
		}
		if w.isLast(buffer[:n]) {
			last.Store(true)
		}
		if _, err := server.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// back forwards the server's responses until it is muted: then it reads the next one, so that the server has
// finished, and closes both ends. After the response to the last statement it cuts all connections.
func (w *faultProxy) back(client, server net.Conn, mute <-chan struct{}, last *atomic.Bool) {
	defer client.Close()
	buffer := make([]byte, 256<<10)
	for {
		n, err := server.Read(buffer)
		if err != nil {
			return
		}
		cut := last.Load() && bytes.HasSuffix(buffer[:n], readyForQuery) // before the client can send the next statement
		select {
		case <-mute:
			w.readToReady(server, buffer[:n])
			return
		default:
		}
		if _, err := client.Write(buffer[:n]); err != nil {
			return
		}
		if cut {
			w.cut()
			return
		}
	}
}

// readyForQuery ends the response to a statement that is not in a transaction, and to COMMIT.
var readyForQuery = []byte{'Z', 0, 0, 0, 5, 'I'}

// readToReady waits for ReadyForQuery, which ends a response.
func (w *faultProxy) readToReady(server io.Reader, seen []byte) {
	buffer := make([]byte, 64<<10)
	for !bytes.HasSuffix(seen, readyForQuery) {
		n, err := server.Read(buffer)
		if err != nil {
			return
		}
		seen = append(bytes.Clone(seen), buffer[:n]...)
	}
}

func (w *faultProxy) keep(conns ...net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range conns {
		w.conns[c] = struct{}{}
	}
	return !w.down
}

func (w *faultProxy) dropsResponse(statement []byte) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lost == 0 || !bytes.Contains(statement, w.lose) {
		return false
	}
	w.lost--
	return true
}
