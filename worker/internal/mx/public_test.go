package mx_test

import (
	"fmt"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// A server that denies public names says nothing about the domains that it does not find, even while it finds others, as that
// of a private network or a DNS firewall does. Lookups stop soon, as in an outage.
func TestCheck_PrivateDNS(t *testing.T) {
	t.Parallel()
	for name, com := range map[string]answer{
		"denied":    {code: dnsmessage.RCodeNameError},
		"no data":   {},
		"refused":   {code: dnsmessage.RCodeRefused},
		"mail only": {mx: []string{"mail.example."}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t, map[string]answer{
				"com": com, "inside.example": {mx: []string{"mail.inside.example."}}, "null.example": {mx: []string{"."}},
			})
			s.hide(true)
			c := newChecker(t, s.address)
			if got := check(t, c, "null.example"); got.Valid {
				t.Errorf("a domain that accepts no mail is valid: %+v", got)
			}
			for i := range 200 {
				check(t, c, "inside.example")
				if got := check(t, c, fmt.Sprintf("d%d.example.com", i)); !got.Valid {
					t.Fatalf("d%d: %+v", i, got)
				}
			}
			if n := s.count("NS com"); n == 0 || n > 5 {
				t.Errorf("asked for com %d times", n)
			}
			if n := s.total(); n > 200 {
				t.Errorf("%d queries", n)
			}
		})
	}
}

// A server that resolves public names is believed, also about the first domain of a mailing.
func TestCheck_PublicDNS(t *testing.T) {
	t.Parallel()
	s := newServer(t, nil)
	c := newChecker(t, s.address)
	for i := range 50 {
		if got := check(t, c, fmt.Sprintf("d%d.example.com", i)); got.Valid {
			t.Fatalf("d%d is valid", i)
		}
	}
	if n := s.count("NS com"); n != 1 {
		t.Errorf("asked for com %d times, want once", n)
	}
}
