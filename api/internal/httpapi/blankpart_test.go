package httpapi_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// A preview, a single send and the dry runs of both kinds of mailings show the same parts, also where one is blank for the data.
func TestBlankPart(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	for i, c := range []struct{ html, text, wantHTML, wantText string }{
		{"<p>Oi</p>", "{{obs}}\n", "<p>Oi</p>", "Oi"},
		{"{{obs}}\n", "Oi", "", "Oi"},
		{"\ufeff<p>Oi</p>", "\ufeffOi", "<p>Oi</p>", "Oi"},
		{"\ufeff<p>Oi</p>", "\u200b{{obs}}", "<p>Oi</p>", "Oi"},
	} {
		name := fmt.Sprint("t", i)
		body, err := json.Marshal(map[string]any{"name": name, "subject": "\ufeffs", "html": c.html, "text": c.text, "publish": true})
		if err != nil {
			t.Fatal(err)
		}
		if r := g.template(t, http.MethodPost, "", string(body)); r.Status != http.StatusCreated {
			t.Fatalf("%d %s", r.Status, r.Body)
		}
		file := part{name: "file", filename: name + ".csv", value: "email;obs\na@example.com;\n"}
		dryRun := part{name: "dryRun", value: "true"}
		shown := map[string]any{"preview": g.template(t, http.MethodPost, "/"+name+"/preview", `{"data": {"obs": ""}}`).json(t)}
		for kind, form := range map[string][]part{
			"template": {{name: "template", value: name}, file, dryRun},
			"own html": {{name: "subject", value: "\ufeffs"}, {name: "html", value: c.html}, {name: "text", value: c.text}, file, dryRun},
		} {
			r := g.upload(t, form, nil)
			emails, _ := r.json(t)["preview"].([]any)
			if len(emails) != 1 {
				t.Fatalf("%s of %q, %q: %d %s", kind, c.html, c.text, r.Status, r.Body)
			}
			shown[kind] = emails[0]
		}
		for kind, one := range shown {
			got, _ := one.(map[string]any)
			html, _ := got["html"].(string)
			if text := fmt.Sprint(got["text"]); got["subject"] != "s" || html != c.wantHTML || strings.TrimSpace(text) != c.wantText {
				t.Errorf("%s of %q, %q: %q", kind, c.html, c.text, got)
			}
		}
		sent := g.do(t, call{Method: http.MethodPost, Path: "/v1/email/send", Body: fmt.Sprintf(`{"to": "ana@example.com", "recipient": {"externalId": "c-1"}, "template": {"name": %q, "data": {"obs": ""}}}`, name)})
		var subject, html, text string
		err = g.SQL.QueryRowContext(t.Context(), `SELECT payload ->> 'subject', coalesce(html, ''), coalesce(text_body, '') FROM email_outbox WHERE id = $1`, sent.json(t)["outboxId"]).Scan(&subject, &html, &text)
		if err != nil || subject != "s" || html != c.wantHTML || text != "" && text != c.wantText {
			t.Errorf("sent %q, %q: %q, %q, %q, %v", c.html, c.text, subject, html, text, err)
		}
	}
}
