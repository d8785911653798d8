// Package sessim is a stand-in for Amazon SES v2. It speaks the wire format of
// SendEmail and GetAccount, keeps what it received, and fails on demand in every
// way in which SES, or a machine on the way to it, can fail.
//
// Its ledger has one entry for each request that arrived, also for those whose
// answer was cut, so that a test can count duplicates the client knows nothing of.
//
// It is used by the program ses-sim and, in-process through httptest, by the tests
// of the worker and the end-to-end tests.
package sessim

import (
	"html/template"
	"net/http"
	"sync"
	"time"
)

// Config holds what is fixed for the life of a Server. Zero fields take the
// defaults named beside them.
type Config struct {
	// MaxSendRate is what GetAccount reports until SetSettings says otherwise,
	// in emails per second: 10,000. It is enforced only with EnforceRate.
	MaxSendRate float64

	// LedgerEntries is how many requests are remembered: 200,000. One costs
	// about 700 bytes. Totals in the summary go on counting beyond it.
	LedgerEntries int

	// InboxMails and InboxBytes bound the full mails kept: 10,000 and 256 MiB,
	// whichever is reached first.
	InboxMails int
	InboxBytes int64

	// Clock tells the time written into entries and used by quota and rate.
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
	pages  *template.Template
	bodies sync.Pool // of *bytes.Buffer, for request bodies

	closing   chan struct{}
	closeOnce sync.Once

	// mu guards everything below. It is never held while decoding, waiting or
	// writing, so a slow client delays nobody.
	mu       sync.Mutex
	settings Settings
	rules    []Rule
	// eventRules say what publisher, nil without an endpoint, tells of a mail.
	eventRules []EventRule
	publisher  *publisher
	tally      tally
	rate       rateLimit
	quota      rollingDay
	ledger     *ledger
	inbox      *inbox
}

// New returns a Server that accepts every valid mail at once.
func New(cfg Config) *Server {
	s := &Server{
		cfg:     cfg.withDefaults(),
		faults:  make(map[string]Fault),
		pages:   newPages(),
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

	m.HandleFunc("POST /sim/faults", s.postFault)
	m.HandleFunc("GET /sim/faults", s.listFaults)
	m.HandleFunc("DELETE /sim/faults", s.deleteFaults)
	m.HandleFunc("GET /sim/events", s.listEvents)
	m.HandleFunc("PUT /sim/events", s.putEvents)
	m.HandleFunc("POST /sim/events/rules", s.postEventRule)
	m.HandleFunc("DELETE /sim/events/rules", s.deleteEventRules)
	m.HandleFunc("GET "+certificatePath, s.showCertificate)
	m.HandleFunc("GET "+confirmPath, s.confirmSubscription)
	m.HandleFunc("PUT /sim/settings", s.putSettings)
	m.HandleFunc("GET /sim/settings", s.showSettings)
	m.HandleFunc("GET /sim/ledger", s.showLedger)
	m.HandleFunc("GET /sim/ledger/summary", s.showSummary)
	m.HandleFunc("POST /sim/reset", s.postReset)

	m.HandleFunc("GET /{$}", s.inboxPage)
	m.HandleFunc("GET /inbox.json", s.inboxJSON)
	m.HandleFunc("GET /messages/{id}", s.messagePage)
	m.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
	})
	return m
}

// ServeHTTP answers the SES operations, the control endpoints and the pages.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.routes.ServeHTTP(w, r)
}

// Reset forgets ledger, inbox, totals and rules, and takes the settings back to those
// of New. Requests that are being held stay held, and whom events are told to stays.
func (s *Server) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settings = Settings{MaxSendRate: s.cfg.MaxSendRate, GetAccount: accountOK}
	s.rules, s.eventRules = nil, nil
	s.tally = tally{}
	s.rate = rateLimit{}
	s.quota = rollingDay{}
	s.ledger = newLedger(s.cfg.LedgerEntries)
	s.inbox = newInbox(s.cfg.InboxMails, s.cfg.InboxBytes)
}

// Close cuts every request that a fault or a latency is holding back, so that
// closing the surrounding HTTP server need not wait for them, and ends publishing.
func (s *Server) Close() {
	s.closeOnce.Do(func() { close(s.closing) })
	if p := s.currentPublisher(); p != nil {
		p.stop()
	}
}
