package environment

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync/atomic"

	"email-gateway/scripts/local"
)

// SES is a server with the API of SES v2 that accepts every email immediately and stores nothing,
// because the gateway is measured. It runs in this process, and is the same for a subject and its
// reference.
type SES struct {
	URL string

	server *local.Server
	taken  atomic.Int64
	onSend func(body []byte)
}

// SendRate is the account's send rate: unreachable, so that neither the token bucket nor the window
// on Redis limits the measurement.
const SendRate = 1_000_000

// NewSES starts a server. onSend, if not nil, is called concurrently with the JSON of each
// SendEmail, before the response; it must not keep body. rate is the account's send rate; 0 means
// unreachable.
func NewSES(rate float64, onSend func(body []byte)) (*SES, error) {
	if rate == 0 {
		rate = SendRate
	}
	s := &SES{onSend: onSend}
	account := `{"SendingEnabled":true,"ProductionAccessEnabled":true,"SendQuota":{"Max24HourSend":-1,"MaxSendRate":` +
		strconv.FormatFloat(rate, 'f', -1, 64) + `,"SentLast24Hours":0}}`
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v2/email/outbound-emails", s.send)
	mux.HandleFunc("GET /v2/email/account", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, account) // the caller may have disconnected
	})
	var err error
	if s.server, err = local.Serve("127.0.0.1:0", &http.Server{Handler: mux}); err != nil {
		return nil, fmt.Errorf("start SES: %w", err)
	}
	s.URL = s.server.URL
	return s, nil
}

func (s *SES) send(w http.ResponseWriter, r *http.Request) {
	if s.onSend == nil {
		_, _ = io.Copy(io.Discard, r.Body)
	} else {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // interrupted: the email was not accepted
		}
		s.onSend(body)
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(fmt.Appendf(nil, `{"MessageId":"0100-bench-%012d"}`, s.taken.Add(1)))
}

// Taken returns the number of emails so far.
func (s *SES) Taken() int64 { return s.taken.Load() }

// Close stops the server and aborts calls in flight.
func (s *SES) Close() error { return s.server.Close() }
