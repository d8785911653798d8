package mailing_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

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

// A name with signs is stored as a generated one, which workers of releases before such names can read.
func TestTemplates_StoredNames(t *testing.T) {
	t.Parallel()
	templates, faults := mailing.ParseTemplates("{{Valor (R$)}}", "<p>{{ Valor (R$) }} {{d1}} {{Desconto %|0}} {{cidade}}</p>", "")
	got, err := templates.Stored(nil)
	want := mailing.Stored{Subject: "{{d2}}", HTML: "<p>{{d2}} {{d1}} {{d3}} {{cidade}}</p>", Fields: []string{"d2", "d1", "d3", "cidade"}}
	if diff := cmp.Diff(want, got); diff != "" || len(faults) > 0 || err != nil {
		t.Error(faults, err, diff)
	}
}
