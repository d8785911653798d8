package email_test

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"email-gateway/shared/email"
)

func TestCheckAddress(t *testing.T) {
	t.Parallel()
	label63 := strings.Repeat("a", 63)
	domain := func(n int) string { // a legal domain of n characters, 3 ≤ n
		return strings.Repeat("a.", (n-1)/2-1) + strings.Repeat("b", (n-1)%2+1) + ".c"
	}
	tests := []struct {
		name, address string
		want          error
	}{
		{"plain", "ana@example.com", nil},
		{"every atom character", "a!#$%&'*+-/=?^_`{|}~9@example.com", nil},
		{"dots inside", "ana.maria.silva@mail.example.com", nil},
		{"one letter each", "a@b.c", nil},
		{"IDNA in its ASCII form", "ana@xn--fsqu00a.xn--0zwm56d", nil},
		{"digits in a label", "a@123.example", nil},
		{"64 before the @", strings.Repeat("a", 64) + "@example.com", nil},
		{"254 in all", strings.Repeat("a", 4) + "@" + domain(249), nil},
		{"label of 63", "a@" + label63 + ".com", nil},

		{"empty", "", email.ErrAddressSyntax},
		{"no @", "ana.example.com", email.ErrAddressSyntax},
		{"nothing before the @", "@example.com", email.ErrAddressSyntax},
		{"nothing after the @", "ana@", email.ErrAddressSyntax},
		{"two @", "ana@maria@example.com", email.ErrAddressSyntax},
		{"one label", "ana@localhost", email.ErrAddressSyntax},
		{"dot first", ".ana@example.com", email.ErrAddressSyntax},
		{"dot last", "ana.@example.com", email.ErrAddressSyntax},
		{"two dots", "ana..maria@example.com", email.ErrAddressSyntax},
		{"space", "ana maria@example.com", email.ErrAddressSyntax},
		{"quoted local part", `"ana maria"@example.com`, email.ErrAddressSyntax},
		{"address literal", "ana@[127.0.0.1]", email.ErrAddressSyntax},
		{"IPv4 as a domain", "ana@127.0.0.1", email.ErrAddressSyntax},
		{"display name", "Ana <ana@example.com>", email.ErrAddressSyntax},
		{"list", "ana@example.com,eva@example.com", email.ErrAddressSyntax},
		{"header injection", "ana@example.com\r\nBcc: eva@example.com", email.ErrAddressSyntax},
		{"NUL", "ana\x00@example.com", email.ErrAddressSyntax},
		{"trailing newline", "ana@example.com\n", email.ErrAddressSyntax},
		{"trailing dot of the root", "ana@example.com.", email.ErrAddressSyntax},
		{"hyphen first in a label", "ana@-example.com", email.ErrAddressSyntax},
		{"hyphen last in a label", "ana@example-.com", email.ErrAddressSyntax},
		{"underscore in the domain", "ana@exa_mple.com", email.ErrAddressSyntax},
		{"label of 64", "a@a" + label63 + ".com", email.ErrAddressSyntax},
		{"domain not in its ASCII form", "ana@exämple.com", email.ErrAddressSyntax},

		{"beyond ASCII before the @", "josé@example.com", email.ErrAddressASCII},
		{"65 before the @", strings.Repeat("a", 65) + "@example.com", email.ErrAddressTooLong},
		{"255 in all", strings.Repeat("a", 5) + "@" + domain(249), email.ErrAddressTooLong},
		{"domain of 254", "a@" + domain(254), email.ErrAddressTooLong},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if err := email.CheckAddress(tt.address); !errors.Is(err, tt.want) {
				t.Errorf("CheckAddress(%q) = %v, want %v", tt.address, err, tt.want)
			}
		})
	}
}

func TestSameAddress_InAnyCase(t *testing.T) {
	t.Parallel()
	tests := []struct {
		a, b string
		same bool
	}{
		{"ana@example.com", "ana@example.com", true},
		{"ana@example.com", "ana@EXAMPLE.Com", true},
		{"ana@example.com", "Ana@Example.com", true},
		{"ana@example.com", "ana@example.org", false},
		{"", "", true},
		{"", "ana@example.com", false},
	}
	for _, tt := range tests {
		if got := email.SameAddress(tt.a, tt.b); got != tt.same {
			t.Errorf("SameAddress(%q, %q) = %v", tt.a, tt.b, got)
		}
	}
	if got := email.NormalAddress("Ana@Example.COM"); got != "Ana@example.com" {
		t.Errorf("NormalAddress keeps %q", got)
	}
	if got := email.DomainOf("Ana@Example.COM"); got != "example.com" {
		t.Errorf("DomainOf = %q", got)
	}
}

func TestHasControl(t *testing.T) {
	t.Parallel()
	for _, r := range []rune{0, '\t', '\n', '\r', 0x1b, 0x1f, 0x7f, 0x80, 0x85, 0x87, 0x9f, 0x2028, 0x2029} {
		if !email.HasControl("a" + string(r) + "b") {
			t.Errorf("HasControl accepts %U", r)
		}
	}
	for _, s := range []string{"", "Olá, João!", " ", "\u00a0", "🙂", "\u0080x"[2:], "PROMOÇÃO"} {
		if email.HasControl(s) {
			t.Errorf("%q is refused", s)
		}
	}
}

// A worker sends what an earlier release has accepted.
func TestHasLineBreak(t *testing.T) {
	t.Parallel()
	for _, r := range []rune{0, '\n', '\r', 0x1f, 0x7f, 0x85, 0x2028, 0x2029} {
		if !email.HasLineBreak("a" + string(r) + "b") {
			t.Errorf("HasLineBreak accepts %U", r)
		}
	}
	for _, s := range []string{"", "Olá, João!", "PROMO\u00c3\u0087", "\u0080\u0084\u0086\u009f"} {
		if email.HasLineBreak(s) {
			t.Errorf("%q is refused", s)
		}
	}
}

// An accepted address is one line of printable ASCII, consists of its parts, and is never longer
// than a provider accepts.
func TestCheckAddress_AcceptedIsHarmless(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		address := rapid.StringMatching(`[a-z!.+]{0,70}@[a-zA-Z0-9.-]{0,260}|.{0,40}@.{0,40}`).Draw(t, "address")
		if email.CheckAddress(address) != nil {
			return
		}
		if len(address) > 254 || email.HasControl(address) || strings.Count(address, "@") != 1 || strings.ContainsAny(address, " <>,;\"") {
			t.Fatalf("%q passes", address)
		}
		if again := email.NormalAddress(address); email.CheckAddress(again) != nil || !email.SameAddress(address, again) {
			t.Fatalf("%q is normalised to %q", address, again)
		}
	})
}
