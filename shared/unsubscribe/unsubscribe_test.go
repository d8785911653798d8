package unsubscribe_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"email-gateway/shared/email"
	"email-gateway/shared/unsubscribe"
)

func secret(b byte) string { return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{b}, 32)) }

func keys(t testing.TB, text string) unsubscribe.Keys {
	t.Helper()
	var k unsubscribe.Keys
	if err := k.UnmarshalText([]byte(text)); err != nil {
		t.Fatal(err)
	}
	return k
}

var link = unsubscribe.Link{
	Company: uuid.MustParse("018f3c6e-0000-7000-8000-000000000001"),
	Mailing: uuid.MustParse("018f3c6e-0000-7000-8000-000000000002"),
	Address: "maria.silva@example.com",
}

// longest is an address of 254 characters.
var longest = strings.Repeat("a", 64) + "@" + strings.Repeat(strings.Repeat("b", 61)+".", 3) + "ccc"

func TestKeys_SealAndOpen(t *testing.T) {
	t.Parallel()
	if err := email.CheckAddress(longest); err != nil || len(longest) != 254 {
		t.Fatalf("%d characters, %v", len(longest), err)
	}
	k := keys(t, secret(1))
	for _, address := range []string{link.Address, "a@b.co", longest, "Ação+x/=?@example.com"} {
		want := link
		want.Address = address
		token := k.Seal(want)
		got, err := k.Open(token)
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v", address, got, err)
		}
		if len(token) > unsubscribe.MaxToken || unsubscribe.MaxToken > 600 || !regexp.MustCompile(`^[A-Za-z0-9_-]+$`).MatchString(token) ||
			unsubscribe.WithoutTokens("/u/"+token+"/x") != "/u//x" {
			t.Errorf("token of %d characters, at most %d: %s", len(token), unsubscribe.MaxToken, token)
		}
	}
	want := link
	want.Address = longest
	if n := len(k.Seal(want)); n != unsubscribe.MaxToken {
		t.Errorf("the longest token has %d characters, MaxToken is %d", n, unsubscribe.MaxToken)
	}
}

func TestKeys_SealIsDeterministic(t *testing.T) {
	t.Parallel()
	k, again := keys(t, secret(1)), keys(t, secret(1)+","+secret(2))
	token := k.Seal(link)
	if other := again.Seal(link); other != token {
		t.Error("the same link has another token")
	}
	upper := link
	upper.Address = "maria.silva@EXAMPLE.com"
	if k.Seal(upper) != token {
		t.Error("the domain's case changes the token")
	}
	if keys(t, secret(2)).Seal(link) == token {
		t.Error("another key gives the same token")
	}
	seen := map[string]bool{token: true}
	for _, change := range []func(*unsubscribe.Link){
		func(l *unsubscribe.Link) { l.Company[15]++ },
		func(l *unsubscribe.Link) { l.Mailing[15]++ },
		func(l *unsubscribe.Link) { l.Company, l.Mailing = l.Mailing, l.Company },
		func(l *unsubscribe.Link) { l.Address = "M" + l.Address[1:] },
		func(l *unsubscribe.Link) { l.Address += "m" },
	} {
		other := link
		change(&other)
		token := k.Seal(other)
		if nonce := token[:17]; seen[token] || seen[nonce] {
			t.Errorf("%+v has the token or nonce of another link", other)
		} else {
			seen[token], seen[nonce] = true, true
		}
	}
}

// TestKeys_SealHides looks for the parts of the link in the token, in clear and in
// base64 at every alignment.
func TestKeys_SealHides(t *testing.T) {
	t.Parallel()
	token := keys(t, secret(1)).Seal(link)
	encrypted, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"maria", "silva", "example", ".com", string(link.Company[:]), string(link.Mailing[8:])} {
		if bytes.Contains(encrypted, []byte(part)) || strings.Contains(strings.ToLower(token), part) {
			t.Errorf("the token contains %q in clear", part)
		}
	}
	if encrypted[0] != 1 {
		t.Errorf("version %d", encrypted[0])
	}
}

func TestKeys_OpenTampered(t *testing.T) {
	t.Parallel()
	k := keys(t, secret(1))
	token := k.Seal(link)
	refused := func(what, token string) {
		t.Helper()
		if got, err := k.Open(token); !errors.Is(err, unsubscribe.ErrInvalid) || got != (unsubscribe.Link{}) {
			t.Errorf("%s: %+v, %v", what, got, err)
		}
	}
	encrypted, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		t.Fatal(err)
	}
	for i := range encrypted {
		for bit := range 8 {
			changed := bytes.Clone(encrypted)
			changed[i] ^= 1 << bit
			refused(fmt.Sprintf("bit %d of byte %d", bit, i), base64.RawURLEncoding.EncodeToString(changed))
		}
		refused(fmt.Sprintf("cut to %d bytes", i), base64.RawURLEncoding.EncodeToString(encrypted[:i]))
		refused(fmt.Sprintf("without the first %d bytes", i+1), base64.RawURLEncoding.EncodeToString(encrypted[i+1:]))
	}
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	for i := range token {
		for _, c := range alphabet + "+/=.%\n\r \x00é" {
			if changed := token[:i] + string(c) + token[i+1:]; changed != token {
				refused(fmt.Sprintf("%q at %d", c, i), changed)
			}
		}
		refused(fmt.Sprintf("line break at %d", i), token[:i]+"\n"+token[i:])
	}
	for what, changed := range map[string]string{
		"empty": "", "a line break behind": token + "\n", "padding": token + "=", "one more": token + "A", "twice": token + token,
		"another key's": keys(t, secret(2)).Seal(link), "huge": strings.Repeat("A", 10<<20), "no base64": "você",
		"an address too long": k.Seal(unsubscribe.Link{Address: "a" + longest}), "no address": k.Seal(unsubscribe.Link{}),
	} {
		refused(what, changed)
	}
}

func TestKeys_Rotation(t *testing.T) {
	t.Parallel()
	before, during, after := keys(t, secret(1)), keys(t, secret(2)+", "+secret(1)), keys(t, secret(2))
	old, fresh := before.Seal(link), during.Seal(link)
	for _, token := range []string{old, fresh} {
		if got, err := during.Open(token); err != nil || got != link {
			t.Errorf("with both keys: %+v, %v", got, err)
		}
	}
	if _, err := after.Open(old); !errors.Is(err, unsubscribe.ErrInvalid) {
		t.Errorf("a removed key still opens tokens: %v", err)
	}
	if got, err := after.Open(fresh); err != nil || got != link {
		t.Errorf("tokens are not sealed with the first key: %+v, %v", got, err)
	}
}

// Equal keys have equal fingerprints, others have others, in the order of the keys.
func TestKeys_Fingerprints(t *testing.T) {
	t.Parallel()
	one, both := keys(t, secret(1)).Fingerprints(), keys(t, secret(2)+","+secret(1)).Fingerprints()
	if len(one) != 1 || len(both) != 2 || both[1] != one[0] || both[0] == one[0] {
		t.Errorf("%q of one key, %q of a new one before it", one, both)
	}
}

func TestKeys_Zero(t *testing.T) {
	t.Parallel()
	var none unsubscribe.Keys
	if token := none.Seal(link); token != "" {
		t.Errorf("encrypted %s", token)
	}
	if _, err := none.Open(keys(t, secret(1)).Seal(link)); !errors.Is(err, unsubscribe.ErrInvalid) {
		t.Error(err)
	}
}

func TestKeys_UnmarshalText(t *testing.T) {
	t.Parallel()
	short := base64.StdEncoding.EncodeToString(make([]byte, 31))
	for _, text := range []string{
		"", "hunter2", short, secret(1) + ",", "," + secret(1), secret(1) + "," + short, secret(1) + "," + "hunter2", "k:" + secret(1),
	} {
		k := keys(t, secret(3))
		token := k.Seal(link)
		err := k.UnmarshalText([]byte(text))
		if err == nil || strings.Contains(err.Error(), "hunter2") || k.Seal(link) != token {
			t.Errorf("%q: %v", text, err)
		}
	}
	long := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{1}, 64))
	if keys(t, long).Seal(link) == keys(t, secret(1)).Seal(link) {
		t.Error("two secrets that differ only in their length give the same token")
	}
}

// TestKeys_Printed prints Keys like a careless log line. Only memory addresses may appear: the
// round keys of a cipher would be hundreds of digits.
func TestKeys_Printed(t *testing.T) {
	t.Parallel()
	k := keys(t, secret(1))
	for _, format := range []string{"%v", "%+v", "%#v", "%x"} {
		for _, value := range []any{k, &k} {
			if printed := fmt.Sprintf(format, value); len(printed) > 200 || strings.Contains(printed, secret(1)) {
				t.Errorf("%s shows %s", format, printed)
			}
		}
	}
}

func TestKeys_Random(t *testing.T) {
	t.Parallel()
	k := keys(t, secret(1)+","+secret(2))
	rapid.Check(t, func(t *rapid.T) {
		want := unsubscribe.Link{
			Company: uuid.UUID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "company")),
			Mailing: uuid.UUID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "mailing")),
			Address: rapid.StringMatching(`[a-zA-Z0-9.+_-]{1,64}@[a-z0-9-]{1,60}(\.[a-z]{2,40}){1,3}`).Draw(t, "address"),
		}
		if got, err := k.Open(k.Seal(want)); err != nil || got != want {
			t.Errorf("%+v, %v, want %+v", got, err, want)
		}
	})
}

// TestKeys_Shared seals in many goroutines at once, for the race detector.
func TestKeys_Shared(t *testing.T) {
	t.Parallel()
	k := keys(t, secret(1))
	want := k.Seal(link)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				token := k.Seal(link)
				if got, err := k.Open(token); token != want || err != nil || got != link {
					t.Errorf("%s: %+v, %v", token, got, err)
				}
			}
		})
	}
	wg.Wait()
}

func TestURL(t *testing.T) {
	t.Parallel()
	for public, want := range map[string]string{
		"https://mail.example.com":         "https://mail.example.com/u/abc-_",
		"https://mail.example.com/":        "https://mail.example.com/u/abc-_",
		"https://mail.example.com/gateway": "https://mail.example.com/gateway/u/abc-_",
		"http://127.0.0.1:8080":            "http://127.0.0.1:8080/u/abc-_",
	} {
		if got := unsubscribe.URL(public, "abc-_"); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	parsed, err := url.Parse(unsubscribe.URL("https://a", keys(t, secret(1)).Seal(link)))
	if err != nil || parsed.EscapedPath() != parsed.Path {
		t.Errorf("%v, %v: the token needs escaping", parsed, err)
	}
}

func TestHeaders(t *testing.T) {
	t.Parallel()
	want := map[string]string{
		"List-Unsubscribe":      "<https://a/u/b>",
		"List-Unsubscribe-Post": "List-Unsubscribe=One-Click",
	}
	if diff := cmp.Diff(want, unsubscribe.Headers("https://a/u/b")); diff != "" {
		t.Error(diff)
	}
	// The provider accepts header values of up to 870 characters.
	k := keys(t, secret(1))
	far := "https://" + strings.Repeat("a", 253)
	if n := len(unsubscribe.Headers(unsubscribe.URL(far, k.Seal(unsubscribe.Link{Address: longest})))["List-Unsubscribe"]); n > 870 {
		t.Errorf("a header of %d characters", n)
	}
}

func BenchmarkKeys_Seal(b *testing.B) {
	k := keys(b, secret(1))
	b.ReportAllocs()
	for b.Loop() {
		if k.Seal(link) == "" {
			b.Fatal("no token")
		}
	}
}
