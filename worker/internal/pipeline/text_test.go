package pipeline_test

import (
	"crypto/sha256"
	"testing"

	"email-gateway/shared/email"
	"email-gateway/shared/htmlcheck"
	"email-gateway/shared/store/outbox"
)

// An email has the text part of its request, or one made from its html unless that is turned off.
// One without html is sent as text.
func TestHandle_TextPart(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	const html = `<p>Olá, <a href="https://acme.example/f">fatura</a></p>`
	for name, test := range map[string]struct {
		change     func(*outbox.NewEmail)
		html, text string
	}{
		"made from html": {func(e *outbox.NewEmail) { e.HTML = html }, html, "Olá, fatura <https://acme.example/f>\n"},
		"turned off":     {func(e *outbox.NewEmail) { e.HTML, e.NoAutoText = html, true }, html, ""},
		"both given":     {func(e *outbox.NewEmail) { e.HTML, e.Text = html, "Oi" }, html, "Oi"},
		"text only":      {func(e *outbox.NewEmail) { e.HTML, e.Text = "", "Oi" }, "", "Oi"},
		"no text in it":  {func(e *outbox.NewEmail) { e.HTML = "<img src=x>" }, "<img src=x>", ""},
	} {
		id := b.Accept(t, b.company, func(e *outbox.NewEmail) {
			test.change(e)
			sum := sha256.Sum256([]byte(e.HTML))
			e.HTMLSHA256 = sum[:]
		})
		if err := b.handle(t, id); err != nil {
			t.Fatal(err)
		}
		if got := b.find(t, id).Status; got != email.Sent {
			t.Fatalf("%s: status %s", name, got)
		}
		if sent := b.sender.sent[len(b.sender.sent)-1]; sent.HTML != test.html || sent.Text != test.text {
			t.Errorf("%s: html %q, text %q", name, sent.HTML, sent.Text)
		}
	}
}

// Each email of a mailing without a text template gets a text part of its own.
func TestMailing_TextPart(t *testing.T) {
	t.Parallel()
	m := newMailingBench(t, `<p>{{cidade}} <a href="{{link}}">ver</a></p>`, "", int(htmlcheck.Version))
	id := m.entry(t, "São <Luís>", "https://acme.example/?a=1&b=2")
	if err := m.handle(t, id); err != nil {
		t.Fatal(err)
	}
	if got, want := m.sender.sent[0].Text, "São <Luís> ver <https://acme.example/?a=1&b=2>\n"; got != want {
		t.Errorf("text %q, want %q", got, want)
	}
	other := newMailingBench(t, `<p>{{cidade}}</p>`, "", int(htmlcheck.Version))
	other.exec(t, `UPDATE mailings SET auto_text = false WHERE id = $1`, other.mailing)
	if err := other.handle(t, other.entry(t, "a", "b")); err != nil {
		t.Fatal(err)
	}
	if got := other.sender.sent[0].Text; got != "" {
		t.Errorf("turned off: text %q", got)
	}
}
