package cluster

import (
	"fmt"
	"net/http"
	"time"

	"email-gateway/scripts/local"
	"email-gateway/scripts/sessim"
)

// Mail is SES: the simulator, in this process, so that its ledger can be read without a connection
// that may be broken.
type Mail struct {
	Simulator *sessim.Server
	*local.Server
}

const (
	// ledgerEntries exceeds the requests of a run: the ledger must be complete.
	ledgerEntries = 4_000_000
	// latency is SES's normal response time, so that calls are in flight at any time when a
	// component is killed.
	latency = 20 * time.Millisecond
)

func newMail(rate float64) (*Mail, error) {
	simulator := sessim.New(sessim.Config{MaxSendRate: rate, LedgerEntries: ledgerEntries, InboxMails: 1000, InboxBytes: 16 << 20})
	settings := simulator.Settings()
	settings.LatencyMS = latency.Milliseconds()
	if err := simulator.SetSettings(settings); err != nil {
		return nil, fmt.Errorf("start SES: %w", err)
	}
	server, err := local.Serve("127.0.0.1:0", &http.Server{Handler: simulator})
	if err != nil {
		return nil, err
	}
	return &Mail{simulator, server}, nil
}

// topic is the apis' SNS topic.
const topic = "arn:aws:sns:us-east-1:123456789012:chaos"

const (
	// FeedbackWindow is how long the workers wait for SES's event about an attempt whose
	// outcome is unknown. It is an eighth of the default of 2 minutes, as the outages of a run
	// are short.
	FeedbackWindow = 15 * time.Second
	// retryPause is the longest pause between two deliveries of one event. It is an eighth of
	// SNS's 20 s.
	retryPause = 2500 * time.Millisecond
	// usualDelay is the delay of most events: after SES's response, which usually has the same
	// information.
	usualDelay = time.Second
	// lateDelay is longer than the window.
	lateDelay = FeedbackWindow + 5*time.Second
)

// publish starts to send SES's events to the URL. Nearly every accepted email has events, as with a
// configuration set in production; a few are delivered twice and in the wrong order, after the
// window, or never. Most emails have only the event Send, which costs the apis least.
func (m *Mail) publish(api string) error {
	both := []string{"Send", "Delivery"}
	for _, rule := range []sessim.EventRule{
		{Events: both, Rate: 0.05, Copies: 2, Reverse: true},
		{Events: both, Rate: 0.02, DelayMS: lateDelay.Milliseconds()},
		{Events: []string{}, Rate: 0.01},
		{Events: both, Rate: 0.1},
		{Events: []string{"Send"}, DelayMS: usualDelay.Milliseconds()},
	} {
		if err := m.Simulator.InjectEvents(rule); err != nil {
			return fmt.Errorf("publish events: %w", err)
		}
	}
	p := sessim.Publication{
		URL: api + "/v1/ses/events", BaseURL: m.URL, TopicARN: topic, RetryPauseMS: retryPause.Milliseconds(),
	}
	if err := m.Simulator.Publish(p); err != nil {
		return fmt.Errorf("publish events: %w", err)
	}
	return nil
}

// Accepted returns the number of emails that SES has accepted so far, each counted once.
func (m *Mail) Accepted() int { return int(m.Simulator.Summary().AcceptedOutboxIDs) }

// Close stops the simulator and its server.
func (m *Mail) Close() error {
	m.Simulator.Close()
	return m.Server.Close()
}
