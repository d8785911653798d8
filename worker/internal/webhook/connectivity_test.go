package webhook_test

import (
	"crypto/x509"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	webhookstore "email-gateway/shared/store/webhook"
	"email-gateway/shared/waittest"
	"email-gateway/worker/internal/webhook"
)

var (
	// connected is a worker that can connect to the test's endpoints, isolated one that cannot.
	connected = webhook.SenderParams{AllowPrivate: true, DisconnectedTime: time.Nanosecond}
	isolated  = webhook.SenderParams{AllowPrivate: true, DisconnectedTime: time.Nanosecond, RefusedNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
)

// useNames gives the endpoints host names, as literal addresses that are refused are not tried.
func (w *world) useNames(t *testing.T) {
	t.Helper()
	w.exec(t, `UPDATE webhook_endpoints SET url = replace(url, '127.0.0.1', 'localhost')`)
}

// An endpoint that is down is disabled, unless the worker connects to no endpoint of several companies, also not to one that has
// accepted events.
func TestService_NoConnectivity(t *testing.T) {
	t.Parallel()
	up, secure := httptest.NewServer(http.NotFoundHandler()), httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = log.New(io.Discard, "", 0) // of failed handshakes
	secure.StartTLS()
	t.Cleanup(up.Close)
	t.Cleanup(secure.Close)
	named := func(url string) string { return strings.Replace(url, "127.0.0.1", "localhost", 1) }
	untrusted := named(secure.URL) // its certificate is for 127.0.0.1
	connected := connected
	connected.RootCAs = x509.NewCertPool()
	connected.RootCAs.AddCert(secure.Certificate())
	for name, tt := range map[string]struct {
		sender    webhook.SenderParams
		endpoints [2]int // of each company
		accepted  string // URL of one of the first company that has accepted events; "" = none
		filtered  bool   // the connections are accepted and closed
		disabled  bool
	}{
		"one endpoint":                 {isolated, [2]int{1, 0}, "", false, true},
		"one company":                  {isolated, [2]int{4, 0}, "", false, true},
		"two hosts":                    {isolated, [2]int{1, 1}, "", false, true},
		"all of several companies":     {isolated, [2]int{2, 1}, "", false, false},
		"one that was up, as well":     {isolated, [2]int{2, 1}, named(up.URL), false, false},
		"all but one that is up":       {connected, [2]int{2, 1}, up.URL, false, true},
		"those that are there fail":    {connected, [2]int{2, 1}, "", false, false},
		"all are filtered":             {connected, [2]int{2, 1}, filter(t), true, false},
		"all but one that has TLS":     {connected, [2]int{2, 1}, secure.URL, true, true},
		"one with another certificate": {connected, [2]int{2, 1}, untrusted, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			const disableAfter = 2 * time.Second
			registry, start := prometheus.NewRegistry(), time.Now()
			var down []*receiver
			for _, n := range tt.endpoints {
				company := w.Company(t)
				for range n {
					down = append(down, w.endpoint(t, company))
				}
				w.emit(t, company, 1, 1)
			}
			for _, r := range down {
				r.Close()
				if tt.filtered {
					w.exec(t, `UPDATE webhook_endpoints SET url = $2 WHERE id = $1`, r.ID, filter(t))
				}
			}
			w.useNames(t)
			if tt.accepted != "" {
				other := w.endpoint(t, down[0].company, "company.webhook_disabled") // gets no event during the test
				w.exec(t, `UPDATE webhook_endpoints SET url = $2, last_success_at = now() WHERE id = $1`, other.ID, tt.accepted)
			}
			s := w.service(func(p *webhook.Params) {
				p.Sender, p.Metrics = webhook.NewSender(tt.sender), webhook.NewMetrics(registry)
				p.Schedule, p.DisableAfter, p.ProbeAfter = scaled(100*time.Millisecond), disableAfter, 50*time.Millisecond
			})
			s.SetFailureWait(100 * time.Millisecond)
			if err := s.Start(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Stop(t.Context()) })
			if tt.disabled {
				for _, r := range down {
					waittest.Until(t, "disabled", func() bool {
						e := w.find(t, r)
						return e.Status == webhookstore.Disabled && *e.DisabledReason == webhookstore.Failing
					})
				}
				return
			}
			waittest.Until(t, "the time after which endpoints are disabled", func() bool {
				return time.Since(start) > 2*disableAfter && errorsOf(t, registry) > 2*float64(len(down))
			})
			for _, r := range down {
				waittest.Until(t, "the time of the first failures does not count", func() bool {
					e := w.find(t, r)
					return e.FailingSince == nil || e.FailingSince.After(start.Add(disableAfter))
				})
				if e := w.find(t, r); e.Status != webhookstore.Enabled {
					t.Error(e.Status)
				}
			}
		})
	}
}

// filter starts a listener that accepts connections and closes them, as egress filters do, and returns its URL.
func filter(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
		}
	}()
	return "https://" + l.Addr().String()
}

// errorsOf returns webhook_endpoint_errors_total.
func errorsOf(t *testing.T, registry *prometheus.Registry) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "webhook_endpoint_errors_total" {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	return 0
}

// Attempts of a worker without connectivity do not count: another worker delivers the events.
func TestService_NoConnectivityKeepsEvents(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var all []*receiver
	for range 3 {
		all = append(all, w.endpoint(t, w.Company(t)))
	}
	w.useNames(t)
	registry := prometheus.NewRegistry()
	s := w.service(func(p *webhook.Params) {
		p.Sender, p.Metrics, p.Schedule = webhook.NewSender(isolated), webhook.NewMetrics(registry), scaled(time.Millisecond)
	})
	s.SetFailureWait(time.Millisecond)
	if err := s.Start(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	for _, r := range all {
		w.emit(t, r.company, 1, 1)
	}
	waittest.Until(t, "endpoints that are not served", func() bool { return errorsOf(t, registry) > 0 })
	for _, r := range all { // more events, after a check
		w.emit(t, r.company, 2, 2)
	}
	before := errorsOf(t, registry)
	waittest.Until(t, "tries", func() bool { return errorsOf(t, registry) > before+20 })
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.start(t, func(p *webhook.Params) { p.Schedule = scaled(time.Millisecond) })
	for _, r := range all {
		waittest.Until(t, "all events", func() bool { return len(r.messages()) >= 4 })
	}
}
