package outbox_test

import (
	"testing"

	"github.com/google/uuid"
)

// Package and function accept an email with text alone, and store whether a text part is made.
func TestEnqueue_Text(t *testing.T) {
	t.Parallel()
	a := newAgenda(t)
	e := reminder()
	html := e.HTML
	e.HTML, e.Text = "", "Até amanhã"
	byPackage := a.enqueue(t, interview("text", "REMINDER"), e).ID
	e.HTML, e.Text, e.NoAutoText = html, "", true
	withoutText := a.enqueue(t, interview("html", "REMINDER"), e).ID
	var byFunction uuid.UUID
	err := a.SQL.QueryRowContext(t.Context(), `SELECT outbox_id FROM email_gateway_enqueue($1, 'interview', '43', 'REMINDER',
		'{"to": "ana@example.com", "subject": "Olá", "text": "Até amanhã", "recipient": {"externalId": "CAND-42"}}')`, a.company).Scan(&byFunction)
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[uuid.UUID][3]any{
		byPackage: {"", "Até amanhã", true}, byFunction: {"", "Até amanhã", true}, withoutText: {html, "", false},
	} {
		var gotHTML, text string
		var autoText, clean bool
		err := a.SQL.QueryRowContext(t.Context(), `SELECT html, coalesce(text_body, ''), auto_text, html_sha256 = sha256(convert_to(html, 'UTF8')) AND NOT payload ? 'autoText'
			FROM email_outbox WHERE id = $1`, id).Scan(&gotHTML, &text, &autoText, &clean)
		if got := [3]any{gotHTML, text, autoText}; err != nil || got != want || !clean {
			t.Errorf("%v, want %v, payload and hash as they should be: %v, %v", got, want, clean, err)
		}
	}
}
