package mailbox_test

import (
	"errors"
	"net/mail"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"email-gateway/shared/email"
	"email-gateway/shared/mailbox"
)

func TestASCII(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"ana@example.com": "ana@example.com", "Ana.B+x@Example.COM": "Ana.B+x@Example.COM", "ze@josé.example": "ze@xn--jos-dma.example",
		"": "", "ana": "", "@example.com": "", "ana@": "", "ana@localhost": "", "zé@example.com": "", "a b@example.com": "", "a@xn--a.example": "",
		"ana@" + strings.Repeat("é", 600) + ".example": "", strings.Repeat("a", 65) + "@example.com": "", `"a b"@example.com`: "", "a@[127.0.0.1]": "",
	} {
		if got, err := mailbox.ASCII(address); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q %v, want %q", address, got, err, want)
		}
	}
}

// Converting a domain as long as a request's body would take minutes.
func TestASCII_LongDomain(t *testing.T) {
	t.Parallel()
	var domain strings.Builder
	for i := 0; domain.Len() < 2<<20; i++ {
		domain.WriteRune(rune(0x4e00 + i%20000))
	}
	for name, convert := range map[string]func() error{
		"ASCII":    func() error { _, err := mailbox.ASCII("a@" + domain.String()); return err },
		"Diagnose": func() error { return mailbox.Diagnose("a@" + domain.String()) },
		"Parse":    func() error { _, err := mailbox.Parse("a@" + domain.String()); return err },
		"Domain":   func() error { _, err := mailbox.Domain(domain.String()); return err },
	} {
		done := make(chan error, 1)
		go func() { done <- convert() }()
		select {
		case err := <-done:
			if !errors.Is(err, email.ErrAddressTooLong) {
				t.Errorf("%s: %v", name, err)
			}
		case <-time.After(time.Minute):
			t.Errorf("%s takes more than a minute", name)
		}
	}
}

// The conversion of a long label takes milliseconds, so it is refused before that. AllocsPerRun excludes parallel tests.
func TestDomain_LongLabel(t *testing.T) {
	label := func(letters int) string {
		var b strings.Builder
		for i := range letters {
			b.WriteRune(rune(0x101 + 2*i))
		}
		return b.String()
	}
	for _, dot := range []string{".", "\u3002", "\uff0e", "\uff61"} {
		domain := "a" + dot + label(127) + dot + "example"
		if n := testing.AllocsPerRun(1, func() {
			if _, err := mailbox.Domain(domain); err == nil {
				t.Errorf("%q: a label of 127 letters is accepted", dot)
			}
		}); n > 2 {
			t.Errorf("%q: a label of 127 letters was converted, which took %v allocations", dot, n)
		}
	}
	accented := strings.Repeat("e\u0301", 40) // 40 letters, written as 80 characters
	if _, err := mailbox.Domain(accented + ".example"); err != nil {
		t.Errorf("40 letters with accents: %v", err)
	}
}

// A valid address may be much longer than its ASCII form.
func TestASCII_LongestDomain(t *testing.T) {
	t.Parallel()
	domain := strings.Repeat(strings.Repeat("\U00020000", 52)+".", 3) + strings.Repeat("\U00020000", 20) + ".example"
	if ascii, err := mailbox.ASCII("ana@" + domain); err != nil {
		t.Errorf("%d bytes: %q %v", len(domain), ascii, err)
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"ana@example.com": "ana@example.com", "Ana <ana@example.com>": `"Ana" <ana@example.com>`, "José <j@josé.example>": "=?utf-8?b?Sm9zw6k=?= <j@xn--jos-dma.example>",
		"Ana": "", "a@example.com, b@example.com": "", "Ana <ana@example.com>\r\nBcc: b@example.com": "", "=?utf-8?q?a=0Ab?= <a@example.com>": "",
		"amigos: a@example.com;": "", strings.Repeat("n", 201) + " <a@example.com>": "", strings.Repeat("名", 200) + " <a@example.com>": "",
	} {
		got := ""
		parsed, err := mailbox.Parse(text)
		if err == nil {
			got, err = mailbox.Header(parsed)
		}
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q %v, want %q", text, got, err, want)
		}
	}
}

// What Header writes is parsed again: by the functions of the database, and by the worker before it sends.
func TestHeader_ParsedAgain(t *testing.T) {
	t.Parallel()
	check := func(t rapid.TB, name string) {
		given := mail.Address{Name: name, Address: "billing@acme.example"}
		header, err := mailbox.Header(given)
		if err != nil {
			t.Fatal(err)
		}
		if parsed, err := mailbox.Parse(header); err != nil || parsed != given {
			t.Fatalf("%s: %+v, %v, want %+v", header, parsed, err, given)
		}
	}
	for c := ' '; c <= '~'; c++ {
		check(t, "S"+string(c)+"o")
		check(t, "S"+string(c)+"ão")
	}
	rapid.Check(t, func(t *rapid.T) {
		isName := func(s string) bool { return !email.HasControl(s) }
		check(t, rapid.StringOfN(rapid.Rune(), 0, 60, -1).Filter(isName).Draw(t, "name"))
	})
}
