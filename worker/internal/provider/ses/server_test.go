package ses_test

import (
	"bufio"
	"encoding/json"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"email-gateway/worker/internal/provider"
	"email-gateway/worker/internal/provider/ses"
)

// endpoint is a loopback server in the role of SES.
type endpoint struct {
	url  string
	seen *atomic.Int32 // completely received requests
}

// serve handles every request with h.
func serve(h http.HandlerFunc) func(*testing.T) endpoint {
	return func(t *testing.T) endpoint {
		seen := new(atomic.Int32)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			seen.Add(1)
			h(w, r)
		}))
		t.Cleanup(server.Close)
		return endpoint{server.URL, seen}
	}
}

// says responds with a status and a body, unlike SES.
func says(status int, body string) func(*testing.T) endpoint {
	return serve(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		io.WriteString(w, body)
	})
}

// refuses responds as SES does: the error's name in a header, its message as JSON.
func refuses(status int, name, message string) func(*testing.T) endpoint {
	return serve(func(w http.ResponseWriter, _ *http.Request) { refuse(w, status, name, message) })
}

func refuse(w http.ResponseWriter, status int, name, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Amzn-ErrorType", name+":http://internal.amazon.com/coral/com.amazonaws.services.sesv2/")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(map[string]string{"message": message})
}

// reads reads complete requests from raw connections and passes the connection on.
func reads(then func(net.Conn)) func(*testing.T) endpoint {
	return func(t *testing.T) endpoint {
		seen := new(atomic.Int32)
		url := listen(t, func(c net.Conn) {
			r, err := http.ReadRequest(bufio.NewReader(c))
			if err != nil {
				return
			}
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				return
			}
			seen.Add(1)
			then(c)
		})
		return endpoint{"http://" + url, seen}
	}
}

// partly reads the header of a request and the beginning of its body, and counts it. then is what happens next; nil =
// nothing, until the test ends.
func partly(then func(net.Conn)) func(*testing.T) endpoint {
	return func(t *testing.T) endpoint {
		seen := new(atomic.Int32)
		url := listen(t, func(c net.Conn) {
			_ = c.(*net.TCPConn).SetReadBuffer(16 << 10)
			if _, err := io.ReadFull(c, make([]byte, 32<<10)); err != nil {
				return
			}
			seen.Add(1)
			if then == nil {
				<-t.Context().Done()
				return
			}
			then(c)
		})
		return endpoint{"http://" + url, seen}
	}
}

// mute accepts TLS connections at the port and never sends anything.
func mute(t *testing.T) endpoint {
	address := listen(t, func(c net.Conn) { io.Copy(io.Discard, c) })
	return endpoint{"https://" + address, new(atomic.Int32)}
}

// closed is a port without a listener.
func closed(t *testing.T) endpoint {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	return endpoint{"http://" + l.Addr().String(), new(atomic.Int32)}
}

// untrusted has a self-signed certificate.
func untrusted(t *testing.T) endpoint {
	seen := new(atomic.Int32)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { seen.Add(1) }))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	return endpoint{server.URL, seen}
}

// listen serves each connection in a goroutine and closes it afterwards.
func listen(t *testing.T, serve func(net.Conn)) (address string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				serve(c)
			}()
		}
	}()
	return l.Addr().String()
}

// hang waits until the client closes the connection.
func hang(c net.Conn) { io.Copy(io.Discard, c) }

// reset closes the connection with RST instead of FIN.
func reset(c net.Conn) { c.(*net.TCPConn).SetLinger(0) }

func newSender(t *testing.T, c ses.Config) *ses.Sender {
	t.Helper()
	if c.Region == "" {
		c.Region = "us-east-1"
	}
	s, err := ses.New(t.Context(), c)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	return s
}

func message() provider.Message {
	return provider.Message{
		From: "pedidos@loja.example", To: "maria@cliente.example", Subject: "Olá", HTML: "<p>Olá</p>",
		OutboxID: "outbox-1", AttemptID: "attempt-1", CompanyID: "company-1",
	}
}
