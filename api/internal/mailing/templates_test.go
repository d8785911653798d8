package mailing_test

import (
	"strings"
	"testing"

	"email-gateway/api/internal/mailing"
	"email-gateway/shared/mailmerge"
)

// A link in the subject does not count, and html and text must each have one.
func TestTemplates_Without(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		subject, html, text string
		want                string
	}{
		{"s", "<p>x</p>", "", "html"},
		{"{{unsubscribe_url}}", "<p>x</p>", "x", "html text"},
		{"s", `<p><a href="{{unsubscribe_url}}">sair</a></p>`, "", ""},
		{"s", "<p>x</p>", "sair: {{unsubscribe_url}}", "html"},
		{"s", `<p><a href="{{unsubscribe_url}}">sair</a></p>`, "sair", "text"},
	} {
		templates, faults := mailing.ParseTemplates(tt.subject, tt.html, tt.text)
		if got := strings.Join(templates.Without(mailmerge.FieldUnsubscribeURL), " "); got != tt.want || len(faults) > 0 {
			t.Errorf("%+v: %q, %v", tt, got, faults)
		}
	}
}
