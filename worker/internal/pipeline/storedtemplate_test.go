package pipeline_test

import (
	"strings"
	"testing"

	"email-gateway/shared/email"
	"email-gateway/shared/htmlcheck"
)

// useTemplate makes the mailing one with a stored template.
func (m *mailingBench) useTemplate(t *testing.T, variables string) {
	t.Helper()
	m.exec(t, `UPDATE mailings SET template = 'natal/pt@2', template_variables = $2 WHERE id = $1`, m.mailing, variables)
}

// The emails of a mailing with a stored template are rendered from the copy in its row, with sections and declared
// defaults, escaped for their place, and in the same way in each attempt.
func TestMailing_StoredTemplate(t *testing.T) {
	t.Parallel()
	m := newMailingBench(t, `{{#cidade}}<p title="{{cidade}}">{{.}}</p>{{/cidade}}{{^cidade}}<p>{{uf}}</p>{{/cidade}}<a href="{{link}}">ver</a><a href="{{unsubscribe_url}}">{{email}}</a>`,
		"{{cidade}} {{token}}", int(htmlcheck.Version))
	m.useTemplate(t, `[{"name": "cidade", "default": null, "required": false}, {"name": "uf", "default": "PE"}]`)
	for _, test := range []struct{ cidade, html, text string }{
		{`São "Luís"`, `<p title="São &#34;Luís&#34;">São &#34;Luís&#34;</p><a href="https://x.example/?a=1&amp;b=2">ver</a><a href="https://`, `São "Luís" tok-1`},
		{"", `<p>PE</p><a href="https://x.example/?a=1&amp;b=2">ver</a><a href="https://`, " tok-1"},
	} {
		id := m.entry(t, test.cidade, "https://x.example/?a=1&b=2")
		if err := m.handle(t, id); err != nil {
			t.Fatal(err)
		}
		if got := m.find(t, id).Status; got != email.Sent {
			t.Fatalf("status %s", got)
		}
		sent := m.sender.sent[len(m.sender.sent)-1]
		if !strings.HasPrefix(sent.HTML, test.html) || !strings.HasSuffix(sent.HTML, ">ana@example.com</a>") || sent.Text != test.text {
			t.Errorf("html %s\ntext %q", sent.HTML, sent.Text)
		}
	}
}

// A template that another version of the checker has accepted is checked again, as clients will read it.
func TestMailing_StoredTemplateIsCheckedAgain(t *testing.T) {
	t.Parallel()
	for html, sent := range map[string]bool{
		`<script>1</script>`:                                                  false,
		`<p>a</p><img src="x" on{{! }}error="a()">`:                           false,
		`{{cidade|<style>}}<script>a()</script>{{cidade|</style>}}`:           false,
		`{{! old: <script>a()</script> }}<p>{{cidade|<img onclick=a()>}}</p>`: true,
	} {
		m := newMailingBench(t, html, "", int(htmlcheck.Version)-1)
		m.useTemplate(t, `[]`)
		err := m.handle(t, m.entry(t, "a", "b"))
		if refused := err != nil && strings.Contains(err.Error(), email.CodeInvalidTemplate); refused == sent || sent && err != nil {
			t.Errorf("%s: %v", html, err)
		}
	}
}

// A mailing may have text alone, of its own or of a stored template.
func TestMailing_TextAlone(t *testing.T) {
	t.Parallel()
	for _, stored := range []bool{false, true} {
		m := newMailingBench(t, "", "{{cidade}} {{unsubscribe_url}}", int(htmlcheck.Version))
		if stored {
			m.useTemplate(t, `[]`)
		}
		id := m.entry(t, "<Recife>", "")
		if err := m.handle(t, id); err != nil {
			t.Fatal(err)
		}
		if sent := m.sender.sent[0]; m.find(t, id).Status != email.Sent || sent.HTML != "" || !strings.HasPrefix(sent.Text, "<Recife> https://mail.acme.example/u/") {
			t.Errorf("stored %v: html %q, text %q", stored, sent.HTML, sent.Text)
		}
	}
}

// A part that is blank for a row counts as absent, as in a single email: the text is made from html, or sent alone.
func TestMailing_BlankPart(t *testing.T) {
	t.Parallel()
	for _, stored := range []bool{false, true} {
		for _, test := range []struct{ html, text, wantHTML, wantText string }{
			{"<p>Oi</p>", "{{cidade}}\n", "<p>Oi</p>", "Oi"},
			{"{{cidade}}\n", "Oi", "", "Oi"},
			{"\ufeff<p>Oi</p>", "\ufeffOi", "<p>Oi</p>", "Oi"},
		} {
			m := newMailingBench(t, test.html, test.text, int(htmlcheck.Version))
			if stored {
				m.useTemplate(t, `[]`)
			}
			if err := m.handle(t, m.entry(t, "", "")); err != nil {
				t.Fatal(err)
			}
			if sent := m.sender.sent[0]; sent.HTML != test.wantHTML || strings.TrimSpace(sent.Text) != test.wantText {
				t.Errorf("stored %v, %q, %q: html %q, text %q", stored, test.html, test.text, sent.HTML, sent.Text)
			}
		}
	}
}
