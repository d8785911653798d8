package email_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"email-gateway/shared/email"
)

func TestMaskAddress(t *testing.T) {
	t.Parallel()
	tests := map[string]string{
		"user@example.com":          "u***@e***.com",
		"u@e.com":                   "u***@e***.com",
		"ana.maria@mail.example.br": "a***@m***.br",
		"ana@localhost":             "a***@l***",
		"élise@exämple.fr":          "é***@e***.fr",
		"":                          "***",
		"not an address":            "***",
		"@example.com":              "***",
		"ana@":                      "***",
	}
	for address, want := range tests {
		if got := email.MaskAddress(address); got != want {
			t.Errorf("MaskAddress(%q) = %q, want %q", address, got, want)
		}
	}
}

func TestMaskHash(t *testing.T) {
	t.Parallel()
	tests := map[string]string{
		strings.Repeat("ab", 32): "abababab...",
		"12345678":               "12345678...",
		"1234567":                "",
		"":                       "",
	}
	for hash, want := range tests {
		if got := email.MaskHash(hash); got != want {
			t.Errorf("MaskHash(%q) = %q, want %q", hash, got, want)
		}
	}
}

func TestMaskText(t *testing.T) {
	t.Parallel()
	tests := map[string]string{
		"nothing to hide": "nothing to hide",
		"Email address is not verified: ana@example.com, eva@example.org": "Email address is not verified: a***@e***.com, e***@e***.org",
		"<ana@example.com>":                                       "<a***@e***.com>",
		"sent to ana@example.com.":                                "sent to a***@e***.com.",
		`"ana@example.com" refused`:                               `"a***@e***.com" refused`,
		"ana@example.com:ana@b.com":                               "a***@e***.com:a***@b***.com",
		"key 529.982.247-25 exists":                               "key *** exists",
		"(cpf)=(52998224725), 11.222.333/0001-81; 12abc34501de35": "(cpf)=(***), ***; ***",
		"52998224726 is none, nor is 152998224725":                "52998224726 is none, nor is 152998224725",
		"": "",
	}
	for text, want := range tests {
		if got := email.MaskText(text); got != want {
			t.Errorf("MaskText(%q) = %q, want %q", text, got, want)
		}
	}
}

// Whatever surrounds an address, its parts do not remain in a masked text.
func TestMaskText_HidesEveryAddress(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		local := rapid.StringMatching(`[a-z][a-z0-9.+_-]{3,20}[a-z0-9]`).Draw(t, "local")
		host := rapid.StringMatching(`[a-z][a-z0-9-]{3,20}`).Draw(t, "host")
		before := rapid.SampledFrom([]string{"", " ", "<", "'", "to=", "to:", "(", "\n", ","}).Draw(t, "before")
		after := rapid.SampledFrom([]string{"", " ", ">", "'", ".", ",", ")", "\n", "; "}).Draw(t, "after")
		text := "refused " + before + local + "@" + host + ".example" + after + "try later"
		masked := email.MaskText(text)
		if strings.Contains(masked, local) || strings.Contains(masked, host) {
			t.Fatalf("%q is masked as %q", text, masked)
		}
		if again := email.MaskText(masked); strings.Contains(again, local) {
			t.Fatalf("masking a masked text changes it to %q", again)
		}
	})
}

func TestMaskHashes(t *testing.T) {
	t.Parallel()
	hash := strings.Repeat("0123456789abcdef", 4)
	value := map[string]any{
		"to": hash, "cpfCnpjHash": 12, "recipient": map[string]any{"cpfCnpjHash": hash},
		"list": []any{map[string]any{"cpfCnpjHash": hash}, "x", nil},
	}
	email.MaskHashes(value)
	want := map[string]any{
		"to": hash, "cpfCnpjHash": 12, "recipient": map[string]any{"cpfCnpjHash": "01234567..."},
		"list": []any{map[string]any{"cpfCnpjHash": "01234567..."}, "x", nil},
	}
	if diff := cmp.Diff(want, value); diff != "" {
		t.Error(diff)
	}
}
