// Package receiver has the webhook endpoints of the chaos run's tenants. They verify each request
// with the library of the Standard Webhooks specification, record what they accept, and now and
// then fail, hang and close connections. Only the chaos run uses it.
package receiver

import (
	"fmt"
	"net/http"
	"strings"
	"sync"

	standard "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"email-gateway/scripts/local"
)

// Server serves the endpoints. All share one address: each has a path of its own.
type Server struct {
	*local.Server
	Endpoints []*Endpoint
}

// Spec describes an endpoint.
type Spec struct {
	Name, Company string
	// Types is the endpoint's filter; empty = all events.
	Types []string
}

// New starts a server with the endpoints, which accept nothing until they have their secrets.
func New(specs []Spec) (*Server, error) {
	mux := http.NewServeMux()
	server, err := local.Serve("127.0.0.1:0", &http.Server{Handler: mux})
	if err != nil {
		return nil, err
	}
	s := &Server{Server: server}
	for _, spec := range specs {
		e := newEndpoint(spec, server.URL+"/"+spec.Name)
		s.Endpoints = append(s.Endpoints, e)
		mux.Handle("/"+spec.Name, e)
	}
	return s, nil
}

// Endpoint is one endpoint.
type Endpoint struct {
	Spec
	URL string

	mu       sync.Mutex
	verify   *standard.Webhook // nil until SetSecret
	mode     Mode
	changed  chan struct{} // closed when mode changes
	outages  map[Mode]int
	requests int
	repeats  int
	seen     map[string]delivery // by webhook-id, accepted or not
	accepted map[string]bool
	order    []Event
	faults   []string
}

// Event is an accepted event.
type Event struct {
	ID    string // the header webhook-id
	Email string
	Seq   int
	Type  string
}

func newEndpoint(spec Spec, url string) *Endpoint {
	return &Endpoint{
		Spec: spec, URL: url, mode: Accept, changed: make(chan struct{}), outages: make(map[Mode]int),
		seen: make(map[string]delivery), accepted: make(map[string]bool),
	}
}

// SetSecret sets the secret with which the gateway signs.
func (e *Endpoint) SetSecret(secret string) error {
	verify, err := standard.NewWebhook(secret)
	if err != nil {
		return fmt.Errorf("secret of %s: %w", e.Name, err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.verify = verify
	return nil
}

// Selects reports whether the filter selects the type of an event.
func (e *Endpoint) Selects(kind string) bool {
	if len(e.Types) == 0 {
		return true
	}
	for _, entry := range e.Types {
		prefix, open := strings.CutSuffix(entry, "*")
		if kind == entry || open && strings.HasPrefix(kind, prefix) {
			return true
		}
	}
	return false
}

// Result is what an endpoint has seen.
type Result struct {
	Requests, Repeats int
	Outages           map[Mode]int
	// Accepted are the events in the order in which each was accepted first.
	Accepted []Event
	// Faults are requests that no outage explains: without a valid signature, or with another
	// content than before.
	Faults []string
}

// Result returns what the endpoint has seen so far.
func (e *Endpoint) Result() Result {
	e.mu.Lock()
	defer e.mu.Unlock()
	outages := make(map[Mode]int, len(e.outages))
	for mode, n := range e.outages {
		outages[mode] = n
	}
	return Result{
		Requests: e.requests, Repeats: e.repeats, Outages: outages,
		Accepted: append([]Event(nil), e.order...), Faults: append([]string(nil), e.faults...),
	}
}
