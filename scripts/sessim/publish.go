package sessim

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"email-gateway/scripts/sessim/sesmail"
)

// Publication configures the endpoint of the events of accepted mails, through a simulated SNS.
type Publication struct {
	// URL is the subscribed endpoint; empty publishes nothing.
	URL string `json:"url"`
	// TopicARN is arn:aws:sns:us-east-1:123456789012:ses-events if it is empty.
	TopicARN string `json:"topicArn"`
	// BaseURL is the simulator's URL as seen by the endpoint: the prefix of the URLs of the
	// certificate and of the confirmation.
	BaseURL string `json:"baseUrl"`
	// SignatureVersion is "1" or "2"; 2 if it is empty.
	SignatureVersion string `json:"signatureVersion"`
	// RetryPauseMS is the longest pause between two deliveries of an event; 20 s if it is 0,
	// as with SNS's default policy.
	RetryPauseMS int64 `json:"retryPauseMs"`
}

func (p Publication) withDefaults() (Publication, error) {
	if p.TopicARN == "" {
		p.TopicARN = "arn:aws:sns:us-east-1:123456789012:ses-events"
	}
	if p.SignatureVersion == "" {
		p.SignatureVersion = "2"
	}
	if p.RetryPauseMS == 0 {
		p.RetryPauseMS = usualRetryPause.Milliseconds()
	}
	p.BaseURL = strings.TrimSuffix(p.BaseURL, "/")
	for name, value := range map[string]string{"url": p.URL, "baseUrl": p.BaseURL} {
		if u, err := url.Parse(value); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return p, fmt.Errorf("%s is not an http:// or https:// URL", name)
		}
	}
	if p.SignatureVersion != "1" && p.SignatureVersion != "2" {
		return p, errors.New("signatureVersion is neither 1 nor 2")
	}
	if p.RetryPauseMS < 0 {
		return p, errors.New("retryPauseMs must not be negative")
	}
	return p, nil
}

// Publish starts to send events of all mails accepted from now on to the endpoint. It first
// requests a confirmation of the subscription; events wait for it. It replaces the previous
// endpoint, whose undelivered events are dropped. Close stops it.
func (s *Server) Publish(p Publication) error {
	var next *publisher
	if p.URL != "" {
		t, err := newTopic(p, s.cfg.Clock())
		if err != nil {
			return fmt.Errorf("publish: %w", err)
		}
		next = newPublisher(t, s.cfg.Clock, s.cfg.LedgerEntries)
	}
	s.mu.Lock()
	before := s.publisher
	s.publisher = next
	s.mu.Unlock()
	if before != nil {
		before.stop()
	}
	if next != nil {
		next.start() // after the certificate can be fetched
	}
	return nil
}

// Events returns the counts of publishing.
func (s *Server) Events() EventCounts {
	if p := s.currentPublisher(); p != nil {
		return p.snapshot()
	}
	return EventCounts{}
}

// Delivered returns the last events that the endpoint answered with 2xx, as many as the ledger has entries.
func (s *Server) Delivered() []Delivered {
	p := s.currentPublisher()
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.known.all())
}

// Notification returns a signed notification with any message, such as that of another publisher to the topic.
func (s *Server) Notification(message string) ([]byte, error) {
	p := s.currentPublisher()
	if p == nil {
		return nil, errors.New("no endpoint is subscribed: call Publish first")
	}
	return p.topic.envelope("Notification", message, s.cfg.Clock(), nil)
}

func (s *Server) currentPublisher() *publisher {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.publisher
}

// publishEventsOf queues the events of an accepted mail, and waits for their delivery if they precede the
// response.
func (s *Server) publishEventsOf(r *http.Request, m *sesmail.Mail, rule EventRule, about []string) {
	p := s.currentPublisher()
	if p == nil || len(rule.Events) == 0 {
		return
	}
	light := *m
	light.HTML, light.Text = "", ""
	done := make(chan struct{})
	var first *notification
	for i := len(rule.Events) - 1; i >= 0; i-- {
		first = &notification{mail: &light, kind: rule.Events[i], about: about, copies: max(rule.Copies, 1), then: first, done: done}
	}
	first.at = time.Now().Add(time.Duration(rule.DelayMS) * time.Millisecond)
	p.add(first)
	if !rule.Early {
		return
	}
	select {
	case <-done:
	case <-r.Context().Done():
	case <-s.closing:
	}
}
