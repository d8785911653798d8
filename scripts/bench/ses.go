package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"
)

// SES is a server in the shape of SES v2 that takes every email at once and remembers
// nothing: what is measured is the gateway. It runs in this process, and is the same for a
// subject and for its reference.
type SES struct {
	URL string

	server *http.Server
	taken  atomic.Int64
	onSend func(body []byte)
}

// sendRate is what the account answers that it may send per second: more than anyone can,
// so that neither the token bucket nor the window on Redis limits what is measured.
const sendRate = 1_000_000

// NewSES starts one. onSend, if not nil, is called with the JSON of each SendEmail, from
// many goroutines at once, before it is answered; it must not keep body. rate is the send
// rate that the account tells; 0 stands for one that nobody reaches.
func NewSES(ctx context.Context, rate float64, onSend func(body []byte)) (*SES, error) {
	if rate == 0 {
		rate = sendRate
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start SES: %w", err)
	}
	s := &SES{URL: "http://" + listener.Addr().String(), onSend: onSend}
	account := `{"SendingEnabled":true,"ProductionAccessEnabled":true,"SendQuota":{"Max24HourSend":-1,"MaxSendRate":` +
		strconv.FormatFloat(rate, 'f', -1, 64) + `,"SentLast24Hours":0}}`
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v2/email/outbound-emails", s.send)
	mux.HandleFunc("GET /v2/email/account", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, account) // the caller may be gone
	})
	s.server = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = s.server.Serve(listener) }() // ends with Close
	return s, nil
}

func (s *SES) send(w http.ResponseWriter, r *http.Request) {
	if s.onSend == nil {
		_, _ = io.Copy(io.Discard, r.Body)
	} else {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // cut off: it was not taken
		}
		s.onSend(body)
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(fmt.Appendf(nil, `{"MessageId":"0100-bench-%012d"}`, s.taken.Add(1)))
}

// Taken counts the emails so far.
func (s *SES) Taken() int64 { return s.taken.Load() }

// Close ends it, with the calls under way.
func (s *SES) Close() error {
	if err := s.server.Close(); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("stop SES: %w", err)
	}
	return nil
}
