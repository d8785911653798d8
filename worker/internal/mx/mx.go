// Package mx asks DNS whether a domain takes mail. Only a clear no counts: whenever
// there is a doubt the address stays valid, and the provider has the last word. The
// expander of mailings uses it, once for each domain of a file.
package mx

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/singleflight"
)

const (
	// lookupTime bounds one verdict: the question for MX and, if there is none, those for
	// A and AAAA.
	lookupTime = 2 * time.Second
	// inFlight bounds the verdicts that are being asked for: resolvers drop what comes in
	// a flood.
	inFlight = 16
)

// Verdict says whether a domain takes mail.
type Verdict struct {
	Valid  bool
	Detail string // why it does not
}

// Off is the setting that leaves DNS alone.
const Off = "off"

// Checker asks, and remembers the answers. It is safe for concurrent use.
type Checker struct {
	off      bool
	resolver *net.Resolver
	slots    chan struct{}
	same     singleflight.Group
	cache    cache
	breaker  breaker
	lookups  *prometheus.CounterVec
}

// Params make a Checker.
type Params struct {
	// Resolver is "" for the system's resolver, "off" for none (every domain is valid then),
	// or the host:port of a DNS server.
	Resolver string
	Registry prometheus.Registerer
}

// New makes a Checker. Its error names what is wrong with Resolver.
func New(p Params) (*Checker, error) {
	c := &Checker{
		off: p.Resolver == Off, resolver: &net.Resolver{PreferGo: true},
		slots: make(chan struct{}, inFlight),
		lookups: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mailing_mx_lookups_total", Help: "Domains looked up in DNS: valid, invalid, or unknown because DNS did not answer.",
		}, []string{"verdict"}),
	}
	if !c.off && p.Resolver != "" {
		host, port, err := net.SplitHostPort(p.Resolver)
		if n, portErr := strconv.Atoi(port); err != nil || host == "" || portErr != nil || n < 1 || n > 65535 {
			return nil, errors.New(`MX_RESOLVER must be empty, "off", or the host:port of a DNS server`)
		}
		var dialer net.Dialer
		c.resolver.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, network, p.Resolver)
		}
	}
	for _, verdict := range []string{"valid", "invalid", "unknown"} {
		c.lookups.WithLabelValues(verdict)
	}
	p.Registry.MustRegister(c.lookups)
	return c, nil
}

// Check gives the verdict on a domain in its ASCII form. It fails only when ctx ends.
func (c *Checker) Check(ctx context.Context, domain string) (Verdict, error) {
	if c.off {
		return Verdict{Valid: true}, nil
	}
	if v, ok := c.cache.get(domain, time.Now()); ok {
		return v, nil
	}
	if c.breaker.open(time.Now()) {
		return Verdict{Valid: true}, nil
	}
	// Callers with the same domain wait for one answer, also when the first of them gives up. One
	// that missed the cache just before the answer came finds it there now.
	answer := c.same.DoChan(domain, func() (any, error) {
		if v, ok := c.cache.get(domain, time.Now()); ok {
			return v, nil
		}
		return c.ask(domain), nil
	})
	select {
	case a := <-answer:
		v, ok := a.Val.(Verdict)
		return v, errors.Join(a.Err, mismatch(ok))
	case <-ctx.Done():
		return Verdict{}, context.Cause(ctx)
	}
}

func mismatch(ok bool) error {
	if ok {
		return nil
	}
	return errors.New("no verdict")
}

// ask looks a domain up when its turn has come.
func (c *Checker) ask(domain string) Verdict {
	c.slots <- struct{}{}
	defer func() { <-c.slots }()
	if c.breaker.open(time.Now()) { // it was shut while this one waited
		return Verdict{Valid: true}
	}
	ctx, cancel := context.WithTimeout(context.Background(), lookupTime)
	defer cancel()
	v, err := c.lookUp(ctx, domain+".") // the dot keeps search domains out
	c.breaker.tell(err == nil, time.Now())
	switch {
	case err != nil:
		c.lookups.WithLabelValues("unknown").Inc()
		v = Verdict{Valid: true}
		c.cache.put(domain, v, time.Now().Add(unknownFor))
	case v.Valid:
		c.lookups.WithLabelValues("valid").Inc()
		c.cache.put(domain, v, time.Now().Add(validFor))
	default:
		c.lookups.WithLabelValues("invalid").Inc()
		c.cache.put(domain, v, time.Now().Add(invalidFor))
	}
	return v
}

// lookUp decides as RFC 5321, 5.1 and RFC 7505 say: MX records, else an address of the
// domain itself; a null MX is a no. An error means that DNS did not say.
func (c *Checker) lookUp(ctx context.Context, name string) (Verdict, error) {
	records, err := c.resolver.LookupMX(ctx, name)
	switch {
	case len(records) == 1 && records[0].Host == ".":
		return Verdict{Detail: "the domain says that it takes no mail (null MX)"}, nil
	case len(records) > 0: // some of them may be unusable, which is an error as well
		return Verdict{Valid: true}, nil
	case err == nil:
		return Verdict{}, errors.New("an answer without records")
	case !isNotFound(err):
		return Verdict{}, fmt.Errorf("look up MX: %w", err)
	}
	addresses, err := c.resolver.LookupNetIP(ctx, "ip", name)
	switch {
	case len(addresses) > 0:
		return Verdict{Valid: true}, nil
	case err != nil && !isNotFound(err):
		return Verdict{}, fmt.Errorf("look up addresses: %w", err)
	}
	return Verdict{Detail: "the domain has neither MX nor address records"}, nil
}

// isNotFound: the name does not exist, or has no such record. A server that fails or
// refuses, or that is not heard of, says neither.
func isNotFound(err error) bool {
	var failed *net.DNSError
	return errors.As(err, &failed) && failed.IsNotFound && !failed.IsTemporary && !failed.IsTimeout
}
