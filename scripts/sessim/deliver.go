package sessim

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"
)

// skew is more than the four minutes from which SDKs treat a wrong date as the cause.
const skew = time.Hour

// responder writes the responses to SendEmail.
type responder struct {
	clock   func() time.Time
	closing <-chan struct{} // delayed requests end when it is closed
}

// deliver executes the verdict and records in the ledger whether the whole response was sent.
func (d responder) deliver(w http.ResponseWriter, r *http.Request, v decision) {
	d.wait(r, v.latency)
	switch v.manner {
	case held:
		select {
		case <-r.Context().Done():
		case <-d.closing:
		}
		panic(http.ErrAbortHandler)
	case closed, reset:
		d.wait(r, v.delay)
		hangUp(w, v.manner == reset)
	case malformed:
		d.wait(r, v.delay)
		writeRaw(w, "SES/2 is not HTTP\r\n\r\n")
	case cutInHead:
		d.wait(r, v.delay)
		writeRaw(w, "HTTP/1.1 200 OK\r\nContent-Type: applica")
	case slowHead:
		answerSlowly(w, v)
	default:
		d.answer(w, r, v)
	}
}

// answer writes the response through net/http.
func (d responder) answer(w http.ResponseWriter, r *http.Request, v decision) {
	contentType, body := v.body(v.record.MessageID, v.Message)
	promised := len(body)
	if v.form == formHalf || v.manner == cutInBody {
		body = body[:cutAt(v.afterBytes, len(body))]
	}
	if v.manner != cutInBody {
		promised = len(body)
	}

	h := setHead(w, v.Fault, contentType, promised)
	switch v.manner {
	case skewedClock:
		h["Date"] = []string{d.clock().Add(skew).UTC().Format(http.TimeFormat)}
	case redirectAway:
		h["Location"] = []string{"/moved"}
	}

	out := http.NewResponseController(w)
	if v.manner == slowBody {
		// Headers are delayed too: clients that receive them within microseconds of their last
		// byte, such as the AWS SDK, may treat that as a broken connection.
		d.wait(r, v.delay/2)
		w.WriteHeader(v.Status)
		_ = out.Flush() // an error recurs at the last flush
		d.wait(r, v.delay-v.delay/2)
	} else {
		d.wait(r, v.delay)
		w.WriteHeader(v.Status)
	}
	if r.Context().Err() != nil {
		panic(http.ErrAbortHandler)
	}
	// Recorded first, so that a client that has the response finds the record.
	whole := v.manner != cutInBody
	v.ledger.setAnswered(v.record, whole)
	_, err := w.Write(body)
	if err == nil {
		err = out.Flush()
	}
	if err != nil {
		v.ledger.setAnswered(v.record, false)
	}
	if err != nil || !whole {
		panic(http.ErrAbortHandler)
	}
}

// answerSlowly writes the status line, and the rest after the delay. It bypasses net/http, which
// writes all headers at once.
func answerSlowly(w http.ResponseWriter, v decision) {
	conn := takeOver(w)
	defer conn.Close()
	fmt.Fprintf(conn, "HTTP/1.1 %d %s\r\n", v.Status, http.StatusText(v.Status))

	// net/http no longer monitors a detached connection. The client is connected if a read, even of
	// EOF, times out.
	_ = conn.SetReadDeadline(time.Now().Add(v.delay))
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		return
	}
	contentType, body := v.body(v.record.MessageID, v.Message)
	v.ledger.setAnswered(v.record, true)
	_, err := fmt.Fprintf(conn, "Content-Type: %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", contentType, len(body), body)
	if err != nil {
		v.ledger.setAnswered(v.record, false)
	}
}

// wait waits for the delay. It aborts the request without a response if the client disconnects or the
// server closes meanwhile.
func (d responder) wait(r *http.Request, delay time.Duration) {
	if delay <= 0 {
		return
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Context().Done():
		panic(http.ErrAbortHandler)
	case <-d.closing:
		panic(http.ErrAbortHandler)
	}
}

func cutAt(afterBytes, size int) int {
	if afterBytes > 0 {
		return min(afterBytes, size-1) // the body must never be complete
	}
	return size / 2
}

// hangUp closes the connection without a response, by RST if abruptly.
func hangUp(w http.ResponseWriter, abruptly bool) {
	conn := takeOver(w)
	defer conn.Close()
	if !abruptly {
		return
	}
	if t, ok := conn.(interface{ NetConn() net.Conn }); ok { // TLS
		conn = t.NetConn()
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // fails only on a closed connection
	}
}

func writeRaw(w http.ResponseWriter, text string) {
	conn := takeOver(w)
	defer conn.Close()
	_, _ = conn.Write([]byte(text)) // the client may have disconnected
}

// takeOver detaches the connection from net/http. If that is impossible, as in HTTP/2, the request
// is aborted without a response.
func takeOver(w http.ResponseWriter) net.Conn {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	return conn
}
