// Package mx looks up in DNS whether a domain accepts mail. Only a definite no makes an address
// invalid; in doubt it stays valid and the provider decides. That a domain does not exist is definite
// only if it is said by a DNS server that resolves public names. The expander of mailings calls it
// once for each domain of a batch.
package mx

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/singleflight"
)

const (
	// lookupTime bounds one check: the MX lookup and, if there are no MX records, those of A and
	// AAAA. A check that finds none may wait as long again for the lookup of publicName.
	lookupTime = 2 * time.Second
	// inFlight bounds the concurrent checks: resolvers drop queries that exceed their rate limit.
	inFlight = 16
)

// Result says whether a domain accepts mail.
type Result struct {
	Valid  bool
	Detail string // why it does not
}

// Off is the setting that disables DNS lookups.
const Off = "off"

// Checker checks domains and caches the results. It is safe for concurrent use.
type Checker struct {
	off      bool
	resolver *net.Resolver
	public   publicDNS
	slots    chan struct{}
	same     singleflight.Group
	cache    cache
	breaker  breaker
	lookups  *prometheus.CounterVec
}

// Params configure a Checker.
type Params struct {
	// Resolver is "" for the system's resolver, "off" for no lookups (every domain is valid), or
	// the host:port of a DNS server.
	Resolver string
	Log      *slog.Logger
	Registry prometheus.Registerer
}

// New makes a Checker. It fails if Resolver is invalid.
func New(p Params) (*Checker, error) {
	c := &Checker{
		off: p.Resolver == Off, resolver: &net.Resolver{PreferGo: true},
		slots: make(chan struct{}, inFlight),
		lookups: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mailing_mx_lookups_total", Help: "Domains looked up in DNS, by result: valid, invalid, or unknown because DNS did not answer or does not resolve public names.",
		}, []string{"result"}),
	}
	c.public.log, c.public.resolver = p.Log, c.resolver
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
	for _, result := range []string{"valid", "invalid", "unknown"} {
		c.lookups.WithLabelValues(result)
	}
	p.Registry.MustRegister(c.lookups)
	return c, nil
}

// Check returns the result for a domain in ASCII form. It fails only when ctx ends.
func (c *Checker) Check(ctx context.Context, domain string) (Result, error) {
	if c.off {
		return Result{Valid: true}, nil
	}
	if v, ok := c.cache.get(domain, time.Now()); ok {
		return v, nil
	}
	if c.breaker.open(time.Now()) {
		return Result{Valid: true}, nil
	}
	// Callers with the same domain share one lookup, also if the first of them is cancelled. A
	// caller that missed the cache just before the lookup ended finds the result there.
	answer := c.same.DoChan(domain, func() (any, error) {
		if v, ok := c.cache.get(domain, time.Now()); ok {
			return v, nil
		}
		return c.ask(domain), nil
	})
	select {
	case a := <-answer:
		v, ok := a.Val.(Result)
		return v, errors.Join(a.Err, mismatch(ok))
	case <-ctx.Done():
		return Result{}, context.Cause(ctx)
	}
}

func mismatch(ok bool) error {
	if ok {
		return nil
	}
	return errors.New("no result")
}

// ask looks up a domain when a slot is free.
func (c *Checker) ask(domain string) Result {
	c.slots <- struct{}{}
	defer func() { <-c.slots }()
	if c.breaker.open(time.Now()) { // it was opened while this one waited
		return Result{Valid: true}
	}
	ctx, cancel := context.WithTimeout(context.Background(), lookupTime)
	defer cancel()
	v, err := c.lookUp(ctx, domain+".") // the dot excludes search domains
	c.breaker.record(err == nil, time.Now())
	switch {
	case err != nil:
		c.lookups.WithLabelValues("unknown").Inc()
		v = Result{Valid: true}
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

// lookUp follows RFC 5321, 5.1 and RFC 7505: MX records, else the domain's own addresses; a null MX
// means no mail. An error means that DNS gave no answer, or none to be trusted.
func (c *Checker) lookUp(ctx context.Context, name string) (Result, error) {
	records, err := c.resolver.LookupMX(ctx, name)
	switch {
	case len(records) == 1 && records[0].Host == ".":
		return Result{Detail: "the domain accepts no mail (null MX)"}, nil
	case len(records) > 0: // some of them may be unusable, which is an error as well
		return Result{Valid: true}, nil
	case err == nil:
		return Result{}, errors.New("response has no records")
	case !isNotFound(err):
		return Result{}, fmt.Errorf("look up MX: %w", err)
	}
	found, err := c.hasAddress(ctx, name)
	switch {
	case err != nil:
		return Result{}, fmt.Errorf("look up addresses: %w", err)
	case found:
		return Result{Valid: true}, nil
	}
	if err := c.public.check(); err != nil {
		return Result{}, err
	}
	return Result{Detail: "the domain has neither MX nor address records"}, nil
}

// hasAddress looks up A and AAAA records at the same time. They are separate lookups: the error of a lookup of
// both is the first that arrives, so that an empty answer for one of them would hide a failure of the other.
func (c *Checker) hasAddress(ctx context.Context, name string) (found bool, err error) {
	networks := [...]string{"ip4", "ip6"}
	var errs [len(networks)]error
	var asking sync.WaitGroup
	for i, network := range networks {
		asking.Go(func() { _, errs[i] = c.resolver.LookupNetIP(ctx, network, name) })
	}
	asking.Wait()
	for _, failed := range errs {
		switch {
		case failed == nil:
			return true, nil
		case !isNotFound(failed):
			err = failed
		}
	}
	return false, err
}

// isNotFound reports whether the name does not exist or has no such record. A server that fails,
// refuses or times out reports neither.
func isNotFound(err error) bool {
	var failed *net.DNSError
	return errors.As(err, &failed) && failed.IsNotFound && !failed.IsTemporary && !failed.IsTimeout
}
