package mailbox_test

import (
	"errors"
	"strings"
	"testing"

	"email-gateway/shared/mailbox"
)

func TestDiagnose(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"ana@example.com": "", "ze@josé.example": "",
		"Ana <ana@example.com>": "must be a bare address", "<ana@example.com>": "must be a bare address", `"Silva, Ana" <ana@example.com>`: "must be a bare address",
		"ana@example.com, eva@example.com": "must be one address", "Ana <a@b.example>;Eva <e@b.example>": "must be one address", "mailto:ana@example.com": `without its "mailto:" prefix`,
		"": "has no @", "ana": "has no @", " ana@example.com": "begin or end with a space", "ana@example.com ": "begin or end with a space", "ana maria@example.com": "must not contain spaces",
		"ana@example.com\r\n": "line ends", "ana@@example.com": "more than one @", "@example.com": "before or after the @", "ana@": "before or after the @",
		`"ana"@example.com`: "must not have quotes", "ana..maria@example.com": "two dots", ".ana@example.com": "two dots", "ana(x)@example.com": "must not have any of",
		"zé@example.com": "must be ASCII before the @", "ana@localhost": "no dot", "ana@[127.0.0.1]": "not an IP address", "ana@exa_mple.com": "letters, digits, hyphens",
		"ana@example..com": "letters, digits, hyphens", "ana@1.2.3.4": "letters, digits, hyphens", strings.Repeat("a", 65) + "@example.com": "longer than", "ana@xn--a.com": "international name",
	} {
		err := mailbox.Diagnose(address)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", address, err, want)
		}
		if _, refused := mailbox.ASCII(address); (refused == nil) != (err == nil) {
			t.Errorf("%q: Diagnose %v, ASCII %v", address, err, refused)
		}
	}
	if err := mailbox.Diagnose("Ana <ana@example.com>"); !errors.Is(err, mailbox.ErrNamed) {
		t.Error(err)
	}
}
