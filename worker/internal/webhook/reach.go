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

	hooks "email-gateway/shared/store/webhook"
)

const (
	// silence is how long a worker may connect to no endpoint before that is its own fault, if it tries suspectHosts hosts of
	// suspectCompanies companies. One company's endpoints may all be down.
	silence          = 10 * time.Minute
	suspectHosts     = 3
	suspectCompanies = 2
	// comparedEndpoints is how many endpoints that have accepted events are tried before.
	comparedEndpoints = 8
)

// errCutOff: the endpoints are not at fault.
var errCutOff = errors.New("this worker connects to no webhook endpoint of any company: it needs a way to the internet on port 443 that is not a proxy")

// reach knows whether this process can connect to endpoints. It is safe for concurrent use.
type reach struct {
	silence time.Duration

	mu        sync.Mutex
	connected time.Time // last; at first the start of the process
	// hosts and companies are those of the attempts without a connection since then.
	hosts     map[string]bool
	companies map[uuid.UUID]bool
	cutOff    time.Time // since when the missing connections are this worker's fault; zero = they are not
	compared  time.Time // when the last comparison began
}

func newReach(silence time.Duration) *reach {
	r := &reach{silence: silence}
	r.succeeded()
	return r
}

// succeeded notes a TLS handshake or a response.
func (r *reach) succeeded() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.connected, r.hosts, r.companies, r.cutOff = time.Now(), map[string]bool{}, map[uuid.UUID]bool{}, time.Time{}
}

// failed notes an attempt without a response. It may have had a TLS handshake, which succeeded has noted.
func (r *reach) failed(company uuid.UUID, host string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.hosts) < suspectHosts || len(r.companies) < suspectCompanies && !r.companies[company] {
		r.hosts[host], r.companies[company] = true, true
	}
}

// mustCompare reports whether the missing connections look like this worker's fault, so that the endpoints that have accepted
// events must be tried now.
func (r *reach) mustCompare() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if len(r.hosts) < suspectHosts || len(r.companies) < suspectCompanies || now.Sub(r.connected) < r.silence || now.Sub(r.compared) < r.silence/10 {
		return false
	}
	r.compared = now
	return true
}

// lost notes that no endpoint was connected to in the comparison.
func (r *reach) lost() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cutOff.IsZero() && r.connected.Before(r.compared) {
		r.cutOff = time.Now()
	}
}

// cutOffFor returns for how long the missing connections have been this worker's fault; 0 = they are not.
func (r *reach) cutOffFor() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cutOff.IsZero() {
		return 0
	}
	return max(time.Since(r.cutOff), 1)
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
					s.reach.succeeded()
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

// excused reports whether the failures of a round are this worker's fault. They then count against no delivery and no endpoint.
func (s *server) excused(ctx context.Context, r hooks.Result) (bool, error) {
	if r.Failures == 0 || r.Succeeded {
		return false, nil
	}
	reach := s.p.Sender.reach
	if reach.mustCompare() {
		urls, err := s.store.Proven(ctx, comparedEndpoints)
		if err != nil {
			return false, err
		}
		s.p.Sender.connect(ctx, urls)
		reach.lost()
	}
	since := reach.cutOffFor()
	if since == 0 {
		return false, nil
	}
	return true, s.store.Excuse(ctx, s.lease, since)
}
