package webhook

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/url"
	"sync"
	"time"

	"github.com/google/uuid"

	webhookstore "email-gateway/shared/store/webhook"
)

const (
	// disconnectedTime is how long a worker must have failed to connect to every endpoint until it has no connectivity itself, if
	// it tries minHosts hosts of minCompanies companies. The endpoints of one company may all be down.
	disconnectedTime = 10 * time.Minute
	minHosts         = 3
	minCompanies     = 2
	// recordTime is how long after the start of that state a round of this process that began before may record its failure.
	recordTime = 30 * time.Second
	// checkedEndpoints is how many endpoints that have accepted events it must have failed to connect to as well.
	checkedEndpoints = 8
)

var errNoConnectivity = errors.New("this worker connects to no webhook endpoint of any company: " +
	"it needs outbound access to the internet on port 443, without a proxy")

// connectivity records whether this process can connect to endpoints. It is safe for concurrent use.
type connectivity struct {
	disconnectedTime time.Duration

	mu        sync.Mutex
	connected time.Time // last; at first the start of the process
	// hosts and companies are those of the attempts without a connection since then.
	hosts       map[string]bool
	companies   map[uuid.UUID]bool
	unreachable time.Time // when a check found that no endpoint is reachable; zero = this process has connectivity
	checked     time.Time // when the last check began
}

func newConnectivity(disconnectedTime time.Duration) *connectivity {
	c := &connectivity{disconnectedTime: disconnectedTime}
	c.succeeded()
	return c
}

// succeeded records a TLS handshake or a response.
func (c *connectivity) succeeded() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.connected, c.hosts, c.companies, c.unreachable = time.Now(), map[string]bool{}, map[uuid.UUID]bool{}, time.Time{}
}

// failed records an attempt without a response. It may have had a TLS handshake, which succeeded has recorded.
func (c *connectivity) failed(company uuid.UUID, host string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.hosts) < minHosts || len(c.companies) < minCompanies && !c.companies[company] {
		c.hosts[host], c.companies[company] = true, true
	}
}

// beginCheck reports whether enough attempts have failed for long enough that the caller must check now whether endpoints that
// have accepted events are reachable.
func (c *connectivity) beginCheck() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if len(c.hosts) < minHosts || len(c.companies) < minCompanies ||
		now.Sub(c.connected) < c.disconnectedTime || now.Sub(c.checked) < c.disconnectedTime/10 {
		return false
	}
	c.checked = now
	return true
}

// endCheck records that no endpoint is reachable, unless a connection has succeeded since the check began.
func (c *connectivity) endCheck() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.unreachable.IsZero() && c.connected.Before(c.checked) {
		c.unreachable = time.Now()
	}
}

// unreachableFor returns for how long no endpoint has been reachable; 0 = this process has connectivity.
func (c *connectivity) unreachableFor() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.unreachable.IsZero() {
		return 0
	}
	return max(time.Since(c.unreachable), 1)
}

// connect connects to the hosts of the URLs at the same time, without a request, until it succeeds with one.
func (s *Sender) connect(ctx context.Context, urls []string) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	var all sync.WaitGroup
	for _, text := range urls {
		if u, err := url.Parse(text); err == nil && s.policy.CheckURL(text) == nil {
			all.Go(func() {
				if s.connectTo(ctx, u) == nil {
					s.connectivity.succeeded()
					cancel()
				}
			})
		}
	}
	all.Wait()
}

// connectTo connects to the URL's host. With https the TLS handshake must succeed too.
func (s *Sender) connectTo(ctx context.Context, u *url.URL) error {
	address := net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), u.Scheme))
	dial := s.dialer.DialContext
	if u.Scheme == "https" {
		dial = (&tls.Dialer{NetDialer: s.dialer, Config: s.tls}).DialContext
	}
	conn, err := dial(ctx, "tcp", address)
	if err == nil {
		_ = conn.Close()
	}
	return err
}

// checkConnectivity returns errNoConnectivity if the attempts of a round have failed because this process has no connectivity.
// They then count neither for their deliveries nor for the endpoint.
func (s *server) checkConnectivity(ctx context.Context, r webhookstore.Result) error {
	if r.Failures == 0 || r.Succeeded {
		return nil
	}
	c := s.p.Sender.connectivity
	if c.beginCheck() {
		urls, err := s.store.RecentlySuccessful(ctx, checkedEndpoints)
		if err != nil {
			return err
		}
		s.p.Sender.connect(ctx, urls)
		c.endCheck()
	}
	unreachable := c.unreachableFor()
	if unreachable == 0 {
		return nil
	}
	// A failure that was recorded later is another process's, which has connectivity.
	others := max(unreachable-recordTime, 0)
	return cmp.Or(s.store.ResetFailingSince(ctx, s.lease, others), errNoConnectivity)
}
