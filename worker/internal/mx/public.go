package mx

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

// publicName exists in the public DNS: it is the largest top-level domain. Almost every resolver has its name servers in its
// cache, so that the lookup reaches no third party.
const publicName = "com."

const (
	// publicFor is how long a resolver that found publicName is trusted. A mailing is expanded within seconds or minutes, so
	// that a longer time would make its addresses invalid if the resolver changes.
	publicFor = time.Minute
	// privateFor is how long a resolver that did not find it is not asked again.
	privateFor = 10 * time.Second
)

// publicDNS knows whether the resolver resolves public names. One of a private network, or a DNS firewall, answers that every
// other name does not exist, which says nothing about the name.
type publicDNS struct {
	log      *slog.Logger
	resolver *net.Resolver
	same     singleflight.Group

	mu    sync.Mutex
	err   error // of the last lookup
	until time.Time
}

// check returns nil if the resolver has resolved publicName within publicFor.
func (p *publicDNS) check() error {
	if known, err := p.known(); known {
		return err
	}
	_, err, _ := p.same.Do("", func() (any, error) {
		if known, err := p.known(); known {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(context.Background(), lookupTime)
		defer cancel()
		_, err := p.resolver.LookupNS(ctx, publicName)
		if err != nil {
			err = fmt.Errorf("look up NS of %s: %w", publicName, err)
		}
		p.record(err)
		return nil, err
	})
	return err
}

// known returns the result of the last lookup, if that is recent.
func (p *publicDNS) known() (known bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Now().Before(p.until), p.err
}

// record stores the result of a lookup, and logs a change.
func (p *publicDNS) record(err error) {
	p.mu.Lock()
	before := p.err
	p.err, p.until = err, time.Now().Add(publicFor)
	if err != nil {
		p.until = time.Now().Add(privateFor)
	}
	p.mu.Unlock()
	switch {
	case err != nil && before == nil:
		p.log.Error("the DNS server does not resolve public names: domains that it does not find count as valid, see MX_RESOLVER", "error", err)
	case err == nil && before != nil:
		p.log.Info("the DNS server resolves public names again")
	}
}
