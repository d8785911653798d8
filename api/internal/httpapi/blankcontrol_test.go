package httpapi_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"
)

// A blank value that selects what a request does is refused: an unset variable of a script must not send a mailing at once, or
// delete more than one suppression.
func TestBlankControl(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	post, patch, remove := http.MethodPost, http.MethodPatch, http.MethodDelete
	calls := map[string]call{
		"mode": {Method: post, Path: "/v1/email/batch?mode=", Body: `{"emails":[` + emailBody(nil) + `]}`},
	}
	for _, field := range []string{"sendAt", "delivery", "dryRun", "start", "emptyFields", "autoText", "templateLocale", "templateVersion", "test"} {
		calls["part "+field] = uploadCall(t, given(part{name: field, value: " "}), nil)
	}
	for _, field := range []string{"sendAt", "delivery"} {
		calls["field "+field] = call{Method: post, Path: "/v1/email/send", Body: emailBody(with(field, "\u200b"))}
	}
	template := call{Method: post, Path: "/v1/templates", Body: `{"name":"welcome","subject":"a","text":"a","publish":true}`}
	if r := g.do(t, template); r.Status != http.StatusCreated {
		t.Fatalf("%d %s", r.Status, r.Body)
	}
	calls["field template.locale"] = call{Method: post, Path: "/v1/email/send", Body: emailBody(func(f fields) {
		delete(f, "subject")
		delete(f, "html")
		f["template"] = fields{"name": "welcome", "locale": ""}
	})}
	for name, c := range map[string]call{
		"reason of a removal":     {Method: remove, Path: "/v1/suppressions?address=ana@example.com&reason="},
		"reason of a suppression": {Method: post, Path: "/v1/suppressions", Body: `{"address":"ana@example.com","reason":""}`},
		"locale of a deletion":    {Method: remove, Path: "/v1/templates/invoice?locale=%20"},
		"locale of a publication": {Method: post, Path: "/v1/templates/invoice/publish", Body: `{"version":1,"locale":""}`},
		"locale of a template":    {Method: post, Path: "/v1/templates", Body: `{"name":"invoice","locale":"","subject":"a","text":"a"}`},
		"url of a change":         {Method: patch, Path: "/v1/webhooks/" + uuid.NewString(), Body: `{"url":""}`},
	} {
		calls[name] = c
	}
	for name, c := range calls {
		r := g.do(t, c)
		p := r.problem(t)
		if r.Status != http.StatusUnprocessableEntity || len(p.Errors) != 1 || !strings.Contains(name, p.Errors[0].Field) ||
			p.Errors[0].Code != "REQUIRED" || p.Errors[0].Message != "must not be blank: leave it out" {
			t.Errorf("%s: %d %s", name, r.Status, r.Body)
		}
	}
	if n := g.mailingRows(t); n > 0 {
		t.Errorf("%d rows were written", n)
	}
	if r := g.do(t, call{Method: remove, Path: "/v1/suppressions?address="}); r.Status != http.StatusUnprocessableEntity || !strings.Contains(r.Body, "is required") {
		t.Errorf("a removal without an address: %d %s", r.Status, r.Body)
	}
}
