package mailbox_test

import (
	"strings"
	"testing"

	"email-gateway/shared/mailbox"
)

func TestASCII(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"ana@example.com": "ana@example.com", "Ana.B+x@Example.COM": "Ana.B+x@Example.COM", "ze@josé.example": "ze@xn--jos-dma.example",
		"": "", "ana": "", "@example.com": "", "ana@": "", "ana@localhost": "", "zé@example.com": "", "a b@example.com": "", "a@xn--a.example": "",
		strings.Repeat("a", 65) + "@example.com": "", `"a b"@example.com`: "", "a@[127.0.0.1]": "",
	} {
		if got, err := mailbox.ASCII(address); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q %v, want %q", address, got, err, want)
		}
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"ana@example.com": "ana@example.com", "Ana <ana@example.com>": `"Ana" <ana@example.com>`, "José <j@josé.example>": "=?utf-8?q?Jos=C3=A9?= <j@xn--jos-dma.example>",
		"Ana": "", "a@example.com, b@example.com": "", "Ana <ana@example.com>\r\nBcc: b@example.com": "", "=?utf-8?q?a=0Ab?= <a@example.com>": "",
		"amigos: a@example.com;": "", strings.Repeat("n", 201) + " <a@example.com>": "",
	} {
		parsed, err := mailbox.Parse(text)
		if (err == nil) != (want != "") || err == nil && mailbox.Header(parsed) != want {
			t.Errorf("%q: %q %v, want %q", text, mailbox.Header(parsed), err, want)
		}
	}
}
