package clientip_test

import (
	"fmt"
	"net/http"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"email-gateway/shared/clientip"
)

func TestProxies_Of(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		trusted, remote string
		forwarded       []string
		want            string
	}{
		"no trusted proxy":                {"", "198.51.100.7:4000", []string{"203.0.113.9"}, "198.51.100.7"},
		"a stranger forges":               {"10.0.0.0/8", "198.51.100.7:4000", []string{"203.0.113.9"}, "198.51.100.7"},
		"a proxy":                         {"10.0.0.0/8", "10.0.0.2:4000", []string{"203.0.113.9"}, "203.0.113.9"},
		"a proxy, forged on the left":     {"10.0.0.0/8", "10.0.0.2:4000", []string{"192.0.2.1, 203.0.113.9"}, "203.0.113.9"},
		"two proxies":                     {"10.0.0.0/8", "10.0.0.2:4000", []string{"192.0.2.1, 203.0.113.9, 10.0.0.3"}, "203.0.113.9"},
		"several headers":                 {"10.0.0.0/8", "10.0.0.2:4000", []string{"192.0.2.1", "203.0.113.9"}, "203.0.113.9"},
		"only proxies":                    {"10.0.0.0/8", "10.0.0.2:4000", []string{"10.0.0.4, 10.0.0.3"}, "10.0.0.4"},
		"no header":                       {"10.0.0.0/8", "10.0.0.2:4000", nil, "10.0.0.2"},
		"an empty header":                 {"10.0.0.0/8", "10.0.0.2:4000", []string{""}, "10.0.0.2"},
		"no address":                      {"10.0.0.0/8", "10.0.0.2:4000", []string{"203.0.113.9, unknown"}, "10.0.0.2"},
		"an empty entry":                  {"10.0.0.0/8", "10.0.0.2:4000", []string{"203.0.113.9,"}, "10.0.0.2"},
		"with a port":                     {"10.0.0.0/8", "10.0.0.2:4000", []string{"203.0.113.9:5000"}, "203.0.113.9"},
		"IPv6":                            {"2001:db8::/32", "[2001:db8::1]:4000", []string{"2001:470::9"}, "2001:470::9"},
		"IPv6 in brackets":                {"::1", "[::1]:4000", []string{"[2001:470::9]"}, "2001:470::9"},
		"IPv6 in brackets with a port":    {"::1", "[::1]:4000", []string{"[2001:470::9]:443"}, "2001:470::9"},
		"IPv4 in IPv6":                    {"10.0.0.0/8", "[::ffff:10.0.0.2]:4000", []string{"::ffff:203.0.113.9"}, "203.0.113.9"},
		"a zone":                          {"", "[fe80::1%eth0]:4000", nil, "fe80::1"},
		"a single address":                {"10.0.0.2", "10.0.0.2:1", []string{"203.0.113.9"}, "203.0.113.9"},
		"a single address, its neighbour": {"10.0.0.2", "10.0.0.3:1", []string{"203.0.113.9"}, "10.0.0.3"},
		"a socket":                        {"10.0.0.0/8", "@", []string{"203.0.113.9"}, "invalid IP"},
	} {
		var proxies clientip.Proxies
		if err := proxies.UnmarshalText([]byte(tt.trusted)); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		r := &http.Request{RemoteAddr: tt.remote, Header: http.Header{"X-Forwarded-For": tt.forwarded}}
		if got := proxies.Of(r).String(); got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
}

func TestParseNetworks(t *testing.T) {
	t.Parallel()
	if got, err := clientip.ParseNetworks(" 10.0.0.0/8, 192.0.2.7,2001:db8::/32 "); err != nil || fmt.Sprint(got) != "[10.0.0.0/8 192.0.2.7/32 2001:db8::/32]" {
		t.Errorf("%v, %v", got, err)
	}
	for _, wrong := range []string{"10.0.0.0/33", "10.1.2.3/8", "proxy", "10.0.0.0/8;192.0.2.1", "fe80::1%eth0", "::ffff:10.0.0.0/104", "10.0.0", "*"} {
		if got, err := clientip.ParseNetworks(wrong); err == nil {
			t.Errorf("%s: %v", wrong, got)
		}
	}
}

func TestGuard(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := clientip.NewGuard()
		attacker, neighbour, other := netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::ffff:2"), netip.MustParseAddr("2001:db8:0:1::1")
		for n := range 20 {
			if g.Over(attacker) || g.Wrong(attacker) != 0 {
				t.Fatalf("mistake %d is already limited", n+1)
			}
		}
		if retry := g.Wrong(attacker); retry != 3*time.Second || !g.Over(attacker) {
			t.Errorf("mistake 21: allowed again in %s", retry)
		}
		if g.Wrong(neighbour) == 0 {
			t.Error("another address of the same network has a limit of its own")
		}
		if g.Over(other) || g.Wrong(other) != 0 {
			t.Error("another network is limited too")
		}
		<-time.After(3 * time.Second) // of the bubble's clock
		if g.Over(attacker) || g.Wrong(attacker) != 0 || g.Wrong(attacker) == 0 {
			t.Error("after 3 s no further mistake is allowed")
		}
	})
}

// Many addresses do not increase the memory, and recently active ones are kept.
func TestGuard_Bounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := clientip.NewGuard()
		attacker := netip.MustParseAddr("192.0.2.1")
		for range 25 {
			g.Wrong(attacker)
		}
		for i := range 30_000 {
			g.Wrong(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}))
		}
		if n := g.Watched(); n > 10_000 {
			t.Errorf("%d networks are stored", n)
		}
		if !g.Over(attacker) {
			t.Error("the recently active network was evicted")
		}
	})
}
