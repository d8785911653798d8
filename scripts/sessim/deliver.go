package sessim

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"
)

// skew is more than the four minutes from which SDKs take a wrong date for the cause.
const skew = time.Hour

// deliver carries out the verdict and notes in the ledger whether the answer went out
// whole.
func (s *Server) deliver(w http.ResponseWriter, r *http.Request, v verdict) {
	s.wait(r, v.latency)
	switch v.manner {
	case held:
		select {
		case <-r.Context().Done():
		case <-s.closing:
		}
		panic(http.ErrAbortHandler)
	case closed, reset:
		s.wait(r, v.delay)
		hangUp(w, v.manner == reset)
	case malformed:
		s.wait(r, v.delay)
		writeRaw(w, "SES/2 is not HTTP\r\n\r\n")
	case cutInHead:
		s.wait(r, v.delay)
		writeRaw(w, "HTTP/1.1 200 OK\r\nContent-Type: applica")
	case slowHead:
		answerSlowly(w, v)
	default:
		s.answer(w, r, v)
	}
}

// answer writes through net/http.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, v verdict) {
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
		h["Date"] = []string{s.cfg.Clock().Add(skew).UTC().Format(http.TimeFormat)}
	case redirectAway:
		h["Location"] = []string{"/moved"}
	}

	out := http.NewResponseController(w)
	if v.manner == slowBody {
		// The headers wait too: clients that get them within microseconds of their
		// last byte may take that for a broken connection, the AWS SDK among them.
		s.wait(r, v.delay/2)
		w.WriteHeader(v.Status)
		_ = out.Flush() // a failure shows again at the last flush
		s.wait(r, v.delay-v.delay/2)
	} else {
		s.wait(r, v.delay)
		w.WriteHeader(v.Status)
	}
	if r.Context().Err() != nil {
		panic(http.ErrAbortHandler)
	}
	// Noted first, so that whoever has the answer finds the note.
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

// answerSlowly writes the status line, and the rest after the delay. net/http writes
// headers in one piece, so this goes past it.
func answerSlowly(w http.ResponseWriter, v verdict) {
	conn := takeOver(w)
	defer conn.Close()
	fmt.Fprintf(conn, "HTTP/1.1 %d %s\r\n", v.Status, http.StatusText(v.Status))

	// net/http no longer watches a detached connection. A client that stays is one
	// from which nothing, not even the end, can be read until the deadline.
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

// wait lets d pass. It ends the request without an answer when the client leaves or
// the server closes meanwhile.
func (s *Server) wait(r *http.Request, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Context().Done():
		panic(http.ErrAbortHandler)
	case <-s.closing:
		panic(http.ErrAbortHandler)
	}
}

func cutAt(afterBytes, size int) int {
	if afterBytes > 0 {
		return min(afterBytes, size-1) // it must never be whole
	}
	return size / 2
}

// hangUp ends the connection without an answer, by RST if abruptly.
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
		_ = tcp.SetLinger(0) // fails only on a connection that is gone already
	}
}

func writeRaw(w http.ResponseWriter, text string) {
	conn := takeOver(w)
	defer conn.Close()
	_, _ = conn.Write([]byte(text)) // whether the client still listens is its affair
}

// takeOver detaches the connection from net/http. Where that cannot be done, as in
// HTTP/2, the request just ends without an answer.
func takeOver(w http.ResponseWriter) net.Conn {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	return conn
}
