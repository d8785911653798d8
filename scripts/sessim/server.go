// Package sessim simulates Amazon SES v2. It implements the wire format of SendEmail and
// GetAccount, stores the mails that it received, and can inject all failures of SES and of proxies
// in front of it.
//
// Its ledger has one entry for each complete request, also for those with an interrupted response,
// so that a test can count duplicates that the client cannot detect.
//
// It is used by the program ses-sim and, in-process through httptest, by the tests
// of the worker and the end-to-end tests.
package sessim

import (
	"net/http"
	"sync"
	"time"
)

// Config is the configuration of a Server. Zero fields have the defaults in their comments.
type Config struct {
	// MaxSendRate is the rate that GetAccount reports until SetSettings changes it, in emails per
	// second: 10,000. It is enforced only with EnforceRate.
	MaxSendRate float64

	// LedgerEntries is the maximum number of stored requests: 200,000. Each uses about 700 bytes.
	// Totals in the summary count all requests.
	LedgerEntries int

	// InboxMails and InboxBytes limit the stored mails: 10,000 and 256 MiB, whichever is reached
	// first.
	InboxMails int
	InboxBytes int64

	// Clock returns the time for entries, quota and rate.
	Clock func() time.Time
}

func (c Config) withDefaults() Config {
	if c.MaxSendRate == 0 {
		c.MaxSendRate = 10_000
	}
	if c.LedgerEntries == 0 {
		c.LedgerEntries = 200_000
	}
	if c.InboxMails == 0 {
		c.InboxMails = 10_000
	}
	if c.InboxBytes == 0 {
		c.InboxBytes = 256 << 20
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
	return c
}

// Server is the simulator. It implements http.Handler and is safe for concurrent
// use; so are all its methods.
type Server struct {
	cfg    Config
	routes *http.ServeMux
	faults map[string]Fault
	bodies sync.Pool // of *bytes.Buffer, for request bodies

	closing   chan struct{}
	closeOnce sync.Once

	// mu guards everything below. It is never held while decoding, waiting or writing, so a slow
	// client does not delay others.
	mu      sync.Mutex
	account account
	// eventRules determine the events that publisher, nil without an endpoint, publishes.
	eventRules eventRules
	publisher  *publisher
	ledger     *ledger
	inbox      *inbox
}

// New returns a Server that accepts every valid mail immediately.
func New(cfg Config) *Server {
	s := &Server{
		cfg:     cfg.withDefaults(),
		faults:  make(map[string]Fault),
		closing: make(chan struct{}),
	}
	for _, f := range Faults() {
		s.faults[f.Name] = f
	}
	s.routes = s.newRoutes()
	s.Reset()
	return s
}

func (s *Server) newRoutes() *http.ServeMux {
	m := http.NewServeMux()
	m.HandleFunc("POST /v2/email/outbound-emails", s.sendEmail)
	m.HandleFunc("GET /v2/email/account", s.getAccount)
	m.HandleFunc("/v2/", s.unknownOperation)

	controlAPI{s}.addRoutes(m)
	snsEndpoints{s}.addRoutes(m)
	newInboxPages(s).addRoutes(m)
	m.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
	})
	return m
}

// ServeHTTP serves the SES operations, the control endpoints and the pages.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.routes.ServeHTTP(w, r)
}

// Reset clears ledger, inbox, totals and rules, and restores the settings of New. Held requests
// stay held, and the endpoint of events stays.
func (s *Server) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.account = account{settings: Settings{MaxSendRate: s.cfg.MaxSendRate, GetAccount: accountOK}, faults: s.faults}
	s.eventRules = nil
	s.ledger = newLedger(s.cfg.LedgerEntries)
	s.inbox = newInbox(s.cfg.InboxMails, s.cfg.InboxBytes)
}

// Close aborts every request that a fault or a latency is delaying, so that closing the HTTP server
// need not wait for them, and stops publishing.
func (s *Server) Close() {
	s.closeOnce.Do(func() { close(s.closing) })
	if p := s.currentPublisher(); p != nil {
		p.stop()
	}
}
