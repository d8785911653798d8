package standardwebhook_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"email-gateway/shared/standardwebhook"
)

// The vector of the specification's libraries.
func TestSignature(t *testing.T) {
	t.Parallel()
	secret, err := standardwebhook.ParseSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		t.Fatal(err)
	}
	const want = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
	at, body := time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`)
	if got := standardwebhook.Signature([]standardwebhook.Secret{secret}, "msg_p5jXN8AQM9LWM0D4loKWxJek", at, body); got != want {
		t.Error(got)
	}
	if got := standardwebhook.Signature([]standardwebhook.Secret{secret, secret}, "msg_p5jXN8AQM9LWM0D4loKWxJek", at, body); got != want+" "+want {
		t.Error(got)
	}
}

func TestSecret(t *testing.T) {
	t.Parallel()
	secret, err := standardwebhook.NewSecret()
	if err != nil {
		t.Fatal(err)
	}
	again, err := standardwebhook.ParseSecret(secret.Text())
	if err != nil || again.Text() != secret.Text() {
		t.Error(err)
	}
	for _, format := range []string{"%v", "%s", "%+v", "%#v", "%q"} {
		if printed := fmt.Sprintf(format, secret); strings.Contains(printed, secret.Text()[6:]) {
			t.Errorf("%s prints the secret", format)
		}
	}
	for _, text := range []string{"", "whsec_", "whsec_" + strings.Repeat("A", 28), "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS!", "whsec_" + strings.Repeat("A", 88)} {
		if _, err := standardwebhook.ParseSecret(text); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}

func TestCheckURL(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]error{
		"https://erp.acme.example/hooks?tenant=1": nil, "https://8.8.8.8/": nil, "https://[2606:4700::1111]:8443/x": nil,
		"http://erp.acme.example/": standardwebhook.ErrHTTPS, "ftp://erp.acme.example/": standardwebhook.ErrURL, "erp.acme.example": standardwebhook.ErrURL,
		"https://": standardwebhook.ErrURL, "https://user@erp.acme.example/": standardwebhook.ErrURL, "https://erp.acme.example/#x": standardwebhook.ErrURL,
		"https://erp.acme.example/" + strings.Repeat("x", 2048): standardwebhook.ErrURL, "https:erp": standardwebhook.ErrURL,
		"https://localhost/": standardwebhook.ErrPrivate, "https://a.LOCALHOST./": standardwebhook.ErrPrivate, "https://127.0.0.1/": standardwebhook.ErrPrivate,
		"https://[::1]/": standardwebhook.ErrPrivate, "https://[::ffff:10.0.0.1]/": standardwebhook.ErrPrivate, "https://169.254.169.254/latest": standardwebhook.ErrPrivate,
		"https://[fe80::1%25eth0]/": standardwebhook.ErrPrivate,
	} {
		if err := (standardwebhook.Policy{}).CheckURL(text); err != want { //nolint:errorlint // exactly these
			t.Errorf("%s: %v, want %v", text, err, want)
		}
	}
	if err := (standardwebhook.Policy{AllowPrivate: true}).CheckURL("http://127.0.0.1:9000/"); err != nil {
		t.Error(err)
	}
}

// Networks that the operator refuses are refused with and without AllowPrivate, however the URL writes their addresses.
func TestPolicy_RefusedNetworks(t *testing.T) {
	t.Parallel()
	refused := []netip.Prefix{netip.MustParsePrefix("8.8.8.0/24"), netip.MustParsePrefix("2a05:d014::/36"), netip.MustParsePrefix("127.0.0.0/8")}
	for text, want := range map[string]error{
		"https://8.8.8.8/": standardwebhook.ErrRefused, "https://[::ffff:8.8.8.8]:8443/": standardwebhook.ErrRefused, "https://8.8.8.8./": standardwebhook.ErrRefused,
		"https://[2a05:d014:0:1::5]/": standardwebhook.ErrRefused, "https://[2a05:d014::1%25eth0]/": standardwebhook.ErrRefused, "https://127.0.0.1/": standardwebhook.ErrRefused,
		"https://8.8.4.4/": nil, "https://[2a05:d014:1000::5]/": nil, "https://erp.acme.example/": nil,
	} {
		for _, private := range []bool{false, true} {
			policy := standardwebhook.Policy{AllowPrivate: private, Refused: refused}
			if err := policy.CheckURL(text); err != want { //nolint:errorlint // exactly these
				t.Errorf("%s with AllowPrivate %t: %v, want %v", text, private, err, want)
			}
		}
	}
}

func TestPublicAddress(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"8.8.8.8": true, "2606:4700::1111": true, "::ffff:8.8.8.8": true, "172.32.0.1": true, "100.128.0.1": true, "192.169.0.1": true,
		"10.1.2.3": false, "172.31.255.255": false, "100.127.255.255": false, "198.19.0.1": false, "::ffff:169.254.169.254": false, "64:ff9b::a00:1": false, "fd00:ec2::254": false,
		"::ffff:0:10.0.0.1": false, "::10.0.0.1": false, "fec0::1": false, "5f00::1": false, "4000::1": false, "2002:0a00:0001::1": false, "2001:0:a00:1::1": false,
	} {
		if got := standardwebhook.PublicAddress(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
	if standardwebhook.PublicAddress(netip.Addr{}) {
		t.Error("a public address is reported as not public")
	}
}

func TestFilter(t *testing.T) {
	t.Parallel()
	known := []string{"email.bounced", "email.delivered", "email.delivery_delayed"}
	for entry, valid := range map[string]bool{
		"email.bounced": true, "email.*": true, "email.deliver*": true, "*": false, "email": false, "EMAIL.BOUNCED": false, "email.nothing": false, "": false, "email..": false,
		strings.Repeat("a", 65): false,
	} {
		if err := standardwebhook.CheckType(entry, known); (err == nil) != valid {
			t.Errorf("%q: %v", entry, err)
		}
	}
}
