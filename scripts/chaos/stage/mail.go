package stage

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"email-gateway/scripts/sessim"
)

// Mail is SES: the simulator, in this process, so that its ledger can be read without
// asking over a network that is being cut.
type Mail struct {
	Simulator *sessim.Server
	Addr      string

	server *http.Server
}

const (
	// ledgerEntries are more than a run makes: a ledger that forgets proves nothing.
	ledgerEntries = 4_000_000
	// latency is what SES takes when all is well, so that calls are under way at every
	// moment at which something is killed.
	latency = 20 * time.Millisecond
)

func newMail() (*Mail, error) {
	simulator := sessim.New(sessim.Config{MaxSendRate: SendRate, LedgerEntries: ledgerEntries, InboxMails: 1000, InboxBytes: 16 << 20})
	settings := simulator.Settings()
	settings.LatencyMS = latency.Milliseconds()
	if err := simulator.SetSettings(settings); err != nil {
		return nil, fmt.Errorf("start SES: %w", err)
	}
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start SES: %w", err)
	}
	m := &Mail{
		Simulator: simulator, Addr: listener.Addr().String(),
		server: &http.Server{Handler: simulator, ReadHeaderTimeout: 10 * time.Second},
	}
	go func() { _ = m.server.Serve(listener) }() // ends with close
	return m, nil
}

// Taken counts the emails that SES accepted so far, however often each.
func (m *Mail) Taken() int { return int(m.Simulator.Summary().AcceptedOutboxIDs) }

func (m *Mail) close() error {
	m.Simulator.Close()
	if err := m.server.Close(); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("stop SES: %w", err)
	}
	return nil
}
