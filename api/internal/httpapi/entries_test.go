package httpapi_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// An array or map with any number of entries gets the fault of its field, with the field's own limit.
func TestEntries_TooMany(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	before := g.rows(t)
	list := func(entry string, n int) string {
		return "[" + strings.TrimSuffix(strings.Repeat(entry+",", n), ",") + "]"
	}
	headers := func(n int) string {
		var b strings.Builder
		for i := range n {
			b.WriteString(`,"X-` + strconv.Itoa(i) + `":"v"`)
		}
		return "{" + b.String()[1:] + "}"
	}
	send := func(field, value string) string {
		return strings.Replace(emailBody(nil), "{", `{"`+field+`":`+value+`,`, 1)
	}
	for name, tt := range map[string]struct {
		path, body, field, limit string
	}{
		"attachments":                         {"/v1/email/send", send("attachments", list(`{}`, 50_000)), "attachments", "10"},
		"cc":                                  {"/v1/email/send", send("cc", list(`"a@example.com"`, 100_000)), "cc", "5"},
		"tags that are blank":                 {"/v1/email/send", send("tags", list(`""`, 50_000)), "tags", "5"},
		"headers":                             {"/v1/email/send", send("headers", headers(10_000)), "headers", "10"},
		"attachments of one email in a batch": {"/v1/email/batch", `{"emails":[` + send("attachments", list(`{}`, 300_000)) + `]}`, "emails[0].attachments", "10"},
		"recipients":                          {"/v1/recipients", `{"recipients":` + list(`{}`, 60_000) + `}`, "recipients", "1000"},
		"variables":                           {"/v1/templates", `{"name":"a","subject":"s","html":"<p>x</p>","variables":` + list(`{}`, 60_000) + `}`, "variables", "200"},
		"types":                               {"/v1/webhooks", `{"url":"https://erp.example/hooks","types":` + list(`"email.sent"`, 10_000) + `}`, "types", "50"},
		"one recipient too many":              {"/v1/recipients", `{"recipients":` + list(`{"externalId":"1","email":"a@example.com"}`, 1001) + `}`, "recipients", "1000"},
		"one attachment too many":             {"/v1/email/send", send("attachments", list(`{}`, 11)), "attachments", "10"},
	} {
		r := g.do(t, call{Method: http.MethodPost, Path: tt.path, Body: tt.body})
		if r.Status != http.StatusUnprocessableEntity {
			t.Errorf("%s: %d %.500s", name, r.Status, r.Body)
			continue
		}
		first := r.problem(t).Errors[0]
		if first.Field != tt.field || first.Code != "TOO_MANY" || !strings.HasPrefix(first.Message, "must have at most "+tt.limit+" entries") {
			t.Errorf("%s: %+v", name, first)
		}
	}
	if n := g.rows(t); n != before {
		t.Errorf("%d rows, want %d", n, before)
	}
}
