package mailing_test

import (
	"testing"

	"email-gateway/api/internal/mailing"
	"email-gateway/shared/mailmerge"
)

// A link in the subject is no link to click on.
func TestLetter_Uses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		subject, html, text string
		want                bool
	}{
		{"s", "<p>x</p>", "", false},
		{"{{unsubscribe_url}}", "<p>x</p>", "x", false},
		{"s", `<p><a href="{{unsubscribe_url}}">sair</a></p>`, "", true},
		{"s", "<p>x</p>", "sair: {{unsubscribe_url}}", true},
	} {
		letter, faults := mailing.ParseLetter(tt.subject, tt.html, tt.text)
		if got := letter.Uses(mailmerge.FieldUnsubscribeURL); got != tt.want || len(faults) > 0 {
			t.Errorf("%+v: %v, %v", tt, got, faults)
		}
	}
}
