package mx_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/dns/dnsmessage"

	"email-gateway/shared/waittest"
	"email-gateway/worker/internal/mx"
)

func newChecker(t *testing.T, resolver string) *mx.Checker {
	t.Helper()
	c, err := mx.New(mx.Params{Log: slog.New(slog.DiscardHandler), Resolver: resolver, Registry: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func check(t *testing.T, c *mx.Checker, domain string) mx.Result {
	t.Helper()
	v, err := c.Check(t.Context(), domain)
	if err != nil {
		t.Fatalf("%s: %v", domain, err)
	}
	if v.Valid != (v.Detail == "") {
		t.Errorf("%s: %+v", domain, v)
	}
	return v
}

func TestCheck(t *testing.T) {
	t.Parallel()
	s := newServer(t, map[string]answer{
		"mx.example":        {mx: []string{"mail.mx.example."}},
		"two.example":       {mx: []string{"a.two.example.", "b.two.example."}},
		"strange.example":   {mx: []string{"not_a_host!.example."}, address: "192.0.2.1"},
		"null.example":      {mx: []string{"."}, address: "192.0.2.1"},
		"address.example":   {address: "192.0.2.1"},
		"ip6.example":       {ip6: "2001:db8::1"},
		"empty.example":     {},
		"broken.example":    {code: dnsmessage.RCodeServerFailure},
		"refused.example":   {code: dnsmessage.RCodeRefused},
		"malformed.example": {code: dnsmessage.RCodeFormatError},
		"silent.example":    {silent: true},
	})
	c := newChecker(t, s.address)
	for domain, valid := range map[string]bool{
		"mx.example":        true,
		"two.example":       true,
		"strange.example":   true, // an unusable MX record is a misconfiguration, but not a definite no
		"null.example":      false,
		"address.example":   true,
		"ip6.example":       true,
		"empty.example":     false,
		"missing.example":   false,
		"broken.example":    true,
		"refused.example":   true,
		"malformed.example": true,
		"silent.example":    true,
	} {
		t.Run(domain, func(t *testing.T) {
			t.Parallel()
			if got := check(t, c, domain); got.Valid != valid {
				t.Errorf("%+v", got)
			}
			// Every result is cached for a while.
			asked := s.count("MX " + domain)
			if again := check(t, c, domain); again.Valid != valid || s.count("MX "+domain) != asked || asked == 0 {
				t.Errorf("asked %d times, then again: %+v", asked, again)
			}
		})
	}
}

// If the address lookup gets no answer the domain stays valid, whatever the MX lookup says.
func TestCheck_AddressLookupFails(t *testing.T) {
	t.Parallel()
	answered := make(chan struct{})
	s := newServer(t, map[string]answer{"slow.example": {}})
	c := newChecker(t, s.address)
	s.set("slow.example", answer{hold: answered})
	go func() {
		defer close(answered)
		waittest.Until(t, "the slow lookup has begun", func() bool { return s.count("MX slow.example") > 0 })
		s.set("slow.example", answer{silent: true})
	}()
	if got := check(t, c, "slow.example"); !got.Valid {
		t.Errorf("%+v", got)
	}
}

// A domain without MX records whose A or AAAA lookup fails may have the address that the lookup would have returned,
// although the other lookup says that there is none.
func TestCheck_OneAddressLookupFails(t *testing.T) {
	t.Parallel()
	failing := func(lookup dnsmessage.Type, code dnsmessage.RCode) map[dnsmessage.Type]dnsmessage.RCode {
		return map[dnsmessage.Type]dnsmessage.RCode{lookup: code}
	}
	s := newServer(t, map[string]answer{
		"a-fails.example":             {codes: failing(dnsmessage.TypeA, dnsmessage.RCodeServerFailure)},
		"aaaa-fails.example":          {codes: failing(dnsmessage.TypeAAAA, dnsmessage.RCodeServerFailure)},
		"a-is-refused.example":        {codes: failing(dnsmessage.TypeA, dnsmessage.RCodeRefused)},
		"aaaa-is-refused.example":     {codes: failing(dnsmessage.TypeAAAA, dnsmessage.RCodeRefused)},
		"a-fails-with-aaaa.example":   {ip6: "2001:db8::1", codes: failing(dnsmessage.TypeA, dnsmessage.RCodeServerFailure)},
		"aaaa-does-not-exist.example": {address: "192.0.2.1", codes: failing(dnsmessage.TypeAAAA, dnsmessage.RCodeNameError)},
	})
	c := newChecker(t, s.address)
	for domain := range s.zone {
		if got := check(t, c, domain); !got.Valid {
			t.Errorf("%s: %+v", domain, got)
		}
		if s.count("A "+domain) == 0 || s.count("AAAA "+domain) == 0 {
			t.Errorf("%s: not both kinds of addresses are looked up", domain)
		}
	}
}

func TestCheck_SharedLookup(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	s := newServer(t, map[string]answer{"mx.example": {mx: []string{"mail.example."}, hold: hold}})
	c := newChecker(t, s.address)
	// A caller that is cancelled does not affect the others.
	gone, leave := context.WithCancel(t.Context())
	left := make(chan error)
	go func() {
		_, err := c.Check(gone, "mx.example")
		left <- err
	}()
	waittest.Until(t, "the lookup has begun", func() bool { return s.count("MX mx.example") > 0 })
	leave()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	var asking sync.WaitGroup
	for range 20 {
		asking.Go(func() {
			if got := check(t, c, "mx.example"); !got.Valid {
				t.Errorf("%+v", got)
			}
		})
	}
	close(hold)
	asking.Wait()
	if got := s.count("MX mx.example"); got != 1 {
		t.Errorf("asked %d times", got)
	}
}

func TestCheck_BoundedInFlight(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	zone := make(map[string]answer)
	for i := range 60 {
		zone[fmt.Sprintf("d%d.example", i)] = answer{mx: []string{"mail.example."}, hold: hold}
	}
	s := newServer(t, zone)
	c := newChecker(t, s.address)
	var asking sync.WaitGroup
	for domain := range zone {
		asking.Go(func() { check(t, c, domain) })
	}
	waittest.Until(t, "16 lookups at a time", func() bool { return s.maxAtOnce() >= 16 })
	close(hold)
	asking.Wait()
	if got := s.maxAtOnce(); got != 16 {
		t.Errorf("%d concurrent queries", got)
	}
}

// If DNS fails no lookups are made for a while, so that a file of many domains does not wait for
// each of them.
func TestCheck_DNSOutage(t *testing.T) {
	t.Parallel()
	zone := make(map[string]answer)
	for i := range 200 {
		zone[fmt.Sprintf("d%d.example", i)] = answer{code: dnsmessage.RCodeServerFailure}
	}
	s := newServer(t, zone)
	c := newChecker(t, s.address)
	start := time.Now()
	for domain := range zone {
		if got := check(t, c, domain); !got.Valid {
			t.Errorf("%s: %+v", domain, got)
		}
	}
	if got := s.total(); got < 16 || got > 100 {
		t.Errorf("%d queries in %s", got, time.Since(start))
	}
	// A domain that would be invalid is valid meanwhile.
	if got := check(t, c, "missing.example"); !got.Valid {
		t.Errorf("%+v", got)
	}
}

func TestNew_Resolver(t *testing.T) {
	t.Parallel()
	for resolver, ok := range map[string]bool{
		"": true, "off": true, "127.0.0.1:53": true, "[::1]:5353": true, "dns.example:53": true,
		"127.0.0.1": false, ":53": false, "127.0.0.1:0": false, "127.0.0.1:x": false, "on": false,
	} {
		_, err := mx.New(mx.Params{Log: slog.New(slog.DiscardHandler), Resolver: resolver, Registry: prometheus.NewRegistry()})
		if (err == nil) != ok {
			t.Errorf("%q: %v", resolver, err)
		}
	}
	if got := check(t, newChecker(t, "off"), "missing.invalid"); !got.Valid {
		t.Errorf("off: %+v", got)
	}
}
