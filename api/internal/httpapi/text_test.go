package httpapi_test

import (
	"net/http"
	"strings"
	"testing"
)

// An email needs html or text; a text part is made for it unless autoText is false.
func TestSend_Text(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	send := func(change func(f fields)) reply {
		return g.do(t, call{Method: http.MethodPost, Path: "/v1/email/send", Body: emailBody(change)})
	}
	textOnly := func(f fields) { delete(f, "html"); f["text"] = "Olá" }
	for name, test := range map[string]struct {
		change   func(f fields)
		html     string
		text     string
		autoText bool
	}{
		"text only":  {textOnly, "", "Olá", true},
		"blank html": {func(f fields) { textOnly(f); f["html"] = "  " }, "", "Olá", true},
		"html only":  {nil, "<p>Olá, Ana.</p>", "", true},
		"turned off": {with("autoText", false), "<p>Olá, Ana.</p>", "", false},
	} {
		id, _ := send(test.change).json(t)["outboxId"].(string)
		s := g.stored(t, id)
		var autoText bool
		if err := g.SQL.QueryRowContext(t.Context(), `SELECT auto_text FROM email_outbox WHERE id = $1`, id).Scan(&autoText); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		text := ""
		if s.Text != nil {
			text = *s.Text
		}
		if s.HTML != test.html || text != test.text || autoText != test.autoText || s.Job.HTMLRef != id {
			t.Errorf("%s: html %q, text %q, autoText %v, htmlRef %q", name, s.HTML, text, autoText, s.Job.HTMLRef)
		}
	}
	for name, change := range map[string]func(f fields){
		"neither":        func(f fields) { delete(f, "html") },
		"both blank":     func(f fields) { f["html"], f["text"] = " ", "\n" },
		"autoText alone": func(f fields) { delete(f, "html"); f["autoText"] = true },
	} {
		if r := send(change); r.Status != http.StatusUnprocessableEntity || !strings.Contains(r.Body, "is required unless text is given") {
			t.Errorf("%s: %d %s", name, r.Status, r.Body)
		}
	}
	if r := send(with("autoText", "no")); r.Status != http.StatusUnprocessableEntity || !strings.Contains(r.Body, `"autoText"`) {
		t.Errorf("autoText of a wrong type: %d %s", r.Status, r.Body)
	}
}
