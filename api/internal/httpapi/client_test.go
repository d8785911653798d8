package httpapi_test

import (
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/api/internal/apikey"
	"email-gateway/api/internal/httpapi"
	"email-gateway/shared/clientip"
	"email-gateway/shared/store/tenant"
)

// loopback is a trusted proxy, so that tests can set the address of a request.
func loopback(p *httpapi.Params) {
	p.Proxies = clientip.Proxies{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
}

// Wrong keys are limited per address; valid keys from the same address and other addresses are not
// affected.
func TestWrongKeys(t *testing.T) {
	t.Parallel()
	g := start(t, loopback)
	stranger, err := apikey.New("test")
	if err != nil {
		t.Fatal(err)
	}
	ask := func(from, key string) reply {
		return g.do(t, call{Path: "/v1/emails", Key: key, NoKey: key == "", Header: map[string]string{"X-Forwarded-For": from}})
	}
	statuses := map[int]int{}
	for range 60 {
		r := ask("2001:db8::1", stranger.String())
		statuses[r.Status]++
		if r.Status != http.StatusTooManyRequests {
			continue
		}
		if again, err := strconv.Atoi(r.Header.Get("Retry-After")); err != nil || again < 1 || again > 3 || r.problem(t).Code != "TOO_MANY_WRONG_KEYS" {
			t.Errorf("%v %s", r.Header, r.Body)
		}
	}
	if n := statuses[http.StatusUnauthorized]; n < 20 || n > 35 || n+statuses[http.StatusTooManyRequests] != 60 {
		t.Errorf("responses by status: %v", statuses)
	}
	for range 30 {
		if r := ask("2001:db8::1", g.Key.String()); r.Status != http.StatusOK {
			t.Fatalf("a valid key behind the same address: %d %s", r.Status, r.Body)
		}
	}
	// One more is allowed every 3 s, and a burst of 20 for each new address.
	limited := func(from, key string) bool {
		for range 10 {
			if ask(from, key).Status == http.StatusTooManyRequests {
				return true
			}
		}
		return false
	}
	if !limited("2001:db8::ffff:1", "") {
		t.Error("another address of the same network has a limit of its own")
	}
	if r := ask("2001:db8:0:1::1", stranger.String()); r.Status != http.StatusUnauthorized {
		t.Errorf("another network: %d", r.Status)
	}
	// A client cannot change its address with the header.
	if !limited("203.0.113.1, 2001:db8::1", stranger.String()) {
		t.Error("a forged X-Forwarded-For header changes the client's address")
	}
}

// The log contains the client's address, except for unsubscribe links.
func TestLog_Client(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	g.do(t, call{Path: "/v1/emails", Header: map[string]string{"X-Forwarded-For": "203.0.113.9"}})
	if log := g.Log.String(); !strings.Contains(log, `"client":"127.0.0.1"`) || strings.Contains(log, "203.0.113.9") {
		t.Errorf("without a trusted proxy, the log is %s", log)
	}
	g = start(t, loopback)
	g.do(t, call{Path: "/v1/emails", Header: map[string]string{"X-Forwarded-For": "198.51.100.1, 203.0.113.9"}})
	if log := g.Log.String(); !strings.Contains(log, `"client":"203.0.113.9"`) || strings.Contains(log, "198.51.100.1") {
		t.Errorf("behind a trusted proxy, the log is %s", log)
	}
	g.do(t, call{Path: "/u/some-token", NoKey: true, Header: map[string]string{"X-Forwarded-For": "192.0.2.77"}})
	if log := g.Log.String(); strings.Contains(log, "192.0.2.77") || !strings.Contains(log, "/u/:token") {
		t.Errorf("the log of an unsubscribe link contains an address: %s", log)
	}
}

// The log line of a request about an email of a mailing contains the mailing's id.
func TestLog_EmailOfAMailing(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	id, mailing := g.accept(t, emailBody(nil)), uuid.NewString()
	g.Run(t, `UPDATE email_outbox SET payload = jsonb_set(payload, '{htmlRef}', to_jsonb('mailing:' || $2::text)) WHERE id = $1`, id, mailing)
	g.show(t, id)
	if log := g.Log.String(); !strings.Contains(log, `"mailingId":"`+mailing+`"`) {
		t.Errorf("%s", log)
	}
}

// A key is valid only from its networks and until it expires, also if it is cached.
func TestKeys_Limits(t *testing.T) {
	t.Parallel()
	g := start(t, loopback)
	bound := g.newKey(t, g.Company, func(k *tenant.APIKey) { k.Networks = []string{"203.0.113.0/24", "2001:db8::/32"} }).String()
	for from, want := range map[string]int{"203.0.113.9": 200, "2001:db8::9": 200, "203.0.114.9": 403, "2001:db9::9": 403, "198.51.100.1, 203.0.113.9": 200, "203.0.113.9, 198.51.100.1": 403} {
		r := g.do(t, call{Path: "/v1/emails", Key: bound, Header: map[string]string{"X-Forwarded-For": from}})
		if r.Status != want || want == 403 && r.problem(t).Code != "NETWORK_NOT_ALLOWED" {
			t.Errorf("%s: %d %s", from, r.Status, r.Body)
		}
	}
	ends := time.Now().Add(3 * time.Second)
	short := g.newKey(t, g.Company, func(k *tenant.APIKey) { k.ExpiresAt = &ends }).String()
	ask := func() reply { return g.do(t, call{Path: "/v1/emails", Key: short}) }
	if r := ask(); r.Status != http.StatusOK && time.Now().Before(ends) {
		t.Fatalf("request before the key expires: %d %s", r.Status, r.Body)
	}
	<-time.After(time.Until(ends))
	if r := ask(); r.Status != http.StatusUnauthorized || r.problem(t).Code != "KEY_EXPIRED" {
		t.Errorf("request right after the key has expired: %d %s", r.Status, r.Body)
	}
}
