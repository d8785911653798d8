package httpapi_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"email-gateway/api/internal/apikey"
	"email-gateway/shared/plaintext"
	"email-gateway/shared/store/tenant"
)

func (g *gateway) template(tb testing.TB, method, path, body string) reply {
	tb.Helper()
	return g.do(tb, call{Method: method, Path: "/v1/templates" + path, Body: body})
}

// invoiceTemplate creates a version of the template invoice and publishes it.
func (g *gateway) invoiceTemplate(tb testing.TB, locale, subject string) {
	tb.Helper()
	body := fmt.Sprintf(`{"name": "invoice", "subject": %q, "html": "<p>{{customer.name}}</p><ul>{{#lines}}<li>{{text}}</li>{{/lines}}</ul>", "publish": true}`, subject)
	if locale != "" {
		body = strings.Replace(body, "{", fmt.Sprintf(`{"locale": %q, `, locale), 1)
	}
	if r := g.template(tb, http.MethodPost, "", body); r.Status != http.StatusCreated {
		tb.Fatalf("%d %s", r.Status, r.Body)
	}
}

const invoiceData = `{"number": 7, "customer": {"name": "Ana <b>"}, "lines": [{"text": "Café"}, {"text": "Pão & manteiga"}]}`

func sendInvoice(more string) string {
	return `{"to": "ana@example.com", "recipient": {"externalId": "c-1"}, "template": {"name": "invoice", "data": ` + invoiceData + more + `}}`
}

func TestTemplates_Versions(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	const first = `{"name": "hello", "subject": "Olá {{nome}}", "html": "<p>Olá {{nome}}</p>", "text": "Olá {{nome}}", "variables": [{"name": "nome", "default": "cliente", "description": "Nome"}]}`
	r := g.template(t, http.MethodPost, "", first)
	if r.Status != http.StatusCreated || r.json(t)["version"] != 1.0 || r.json(t)["published"] != false || r.json(t)["createdBy"] != "key:"+g.Key.ID {
		t.Fatalf("%d %s", r.Status, r.Body)
	}
	if r := g.template(t, http.MethodPost, "", first); r.Status != http.StatusOK || r.json(t)["version"] != 1.0 {
		t.Errorf("the same again: %d %s", r.Status, r.Body)
	}
	if r := g.template(t, http.MethodPost, "/hello/preview", `{}`); r.Status != http.StatusNotFound {
		t.Errorf("a preview before a version is published: %d %s", r.Status, r.Body)
	}
	if r := g.template(t, http.MethodPost, "", strings.ReplaceAll(first, "Olá", "Oi")); r.Status != http.StatusCreated || r.json(t)["version"] != 2.0 {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	for range 2 {
		if r := g.template(t, http.MethodPost, "/hello/publish", `{"version": 1}`); r.Status != http.StatusOK || r.json(t)["published"] != true {
			t.Errorf("%d %s", r.Status, r.Body)
		}
	}
	for path, body := range map[string]string{"/hello/publish": `{"version": 3}`, "/nothing/publish": `{"version": 1}`, "/hello/preview": `{"version": 3}`} {
		if r := g.template(t, http.MethodPost, path, body); r.Status != http.StatusNotFound {
			t.Errorf("%s %s: %d %s", path, body, r.Status, r.Body)
		}
	}
	for body, want := range map[string]string{`{}`: "Olá cliente", `{"version": 2, "data": {"nome": "Ana"}}`: "Oi Ana", `{"locale": "pt-BR"}`: "Olá cliente"} {
		if r := g.template(t, http.MethodPost, "/hello/preview", body); r.Status != http.StatusOK || r.json(t)["subject"] != want {
			t.Errorf("%s: %d %s", body, r.Status, r.Body)
		}
	}
	shown := g.template(t, http.MethodGet, "/hello", "")
	var audit struct {
		Events []struct {
			Action, By string
			Version    int
		}
	}
	if err := json.Unmarshal([]byte(shown.Body), &audit); err != nil {
		t.Fatal(err)
	}
	var actions []string
	for _, e := range audit.Events {
		actions = append(actions, fmt.Sprint(e.Action, e.Version))
		if e.By != "key:"+g.Key.ID {
			t.Errorf("by %s", e.By)
		}
	}
	if got := strings.Join(actions, " "); got != "PUBLISHED1 CREATED2 CREATED1" {
		t.Errorf("events: %s", got)
	}
	if r := g.template(t, http.MethodGet, "/hello/versions/2", ""); r.Status != http.StatusOK || r.json(t)["text"] != "Oi {{nome}}" {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	if r := g.template(t, http.MethodGet, "?limit=1", ""); r.Status != http.StatusOK || !strings.Contains(r.Body, `"publishedVersion":1`) {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	if r := g.template(t, http.MethodDelete, "/hello", ""); r.Status != http.StatusNoContent {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	if r := g.template(t, http.MethodDelete, "/hello", ""); r.Status != http.StatusNotFound {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	// A deleted version must not be served from the cache, and numbers are not reused.
	if r := g.template(t, http.MethodPost, "", first); r.Status != http.StatusCreated || r.json(t)["version"] != 3.0 {
		t.Errorf("after the deletion: %d %s", r.Status, r.Body)
	}
}

func TestTemplates_Refused(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	for body, want := range map[string]string{
		`{"name": "a", "subject": "s", "html": "<p>\n {{{x}}}</p>"}`:                            "html FIELD_UNSUPPORTED line 2, column 2",
		`{"name": "a", "subject": "s", "html": "<p onclick='{{x}}'>a</p>"}`:                     "html FIELD_IN_HANDLER line 1, column 13",
		`{"name": "a", "subject": "s", "html": "<p>{{#x}}</p>"}`:                                "html SECTION_UNBALANCED line 1, column 4",
		`{"name": "a", "subject": "s", "html": "<script>1</script>"}`:                           "html INVALID_TEMPLATE",
		`{"name": "a", "subject": "s"}`:                                                         "html REQUIRED",
		`{"name": "A", "subject": "s", "html": "<p>x</p>"}`:                                     "name INVALID_NAME",
		`{"name": "a", "locale": "pt_br", "subject": "s", "html": "<p>x</p>"}`:                  "locale INVALID_LOCALE",
		`{"name": "a", "subject": "a\nb", "html": "<p>x</p>"}`:                                  "subject SUBJECT_CONTROL line 1, column 2",
		`{"name": "a", "subject": "s", "html": "<p>x</p>", "variables": [{"name": "a.b"}]}`:     "variables[0].name INVALID_NAME",
		`{"name": "a", "subject": "s", "html": "<p>x</p>", "lokale": "pt"}`:                     "lokale UNKNOWN_FIELD",
		`{"name": "a", "subject": "s", "html": "` + strings.Repeat("a", 524_289) + `"}`:         "html TOO_LONG",
		`{"name": "a", "subject": "s", "html": "<p>x</p>", "text": "{{#a}}{{#b}}{{/a}}{{/b}}"}`: "text SECTION_UNBALANCED line 1, column 13",
	} {
		r := g.template(t, http.MethodPost, "", body)
		if r.Status != http.StatusUnprocessableEntity {
			t.Errorf("%.80s: %d %.300s", body, r.Status, r.Body)
			continue
		}
		found := r.problem(t).Errors[0]
		if got := found.Field + " " + found.Code + " " + found.Message; !strings.HasPrefix(got, want) {
			t.Errorf("%.80s: %s, want %s", body, got, want)
		}
	}
}

// The worker sends the content that a preview shows.
func TestTemplates_Send(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	g.invoiceTemplate(t, "", "Invoice {{number}}")
	g.invoiceTemplate(t, "pt", "Nota {{number}}")
	preview := g.template(t, http.MethodPost, "/invoice/preview", `{"locale": "pt-BR", "data": `+invoiceData+`}`)
	r := g.do(t, call{Method: http.MethodPost, Path: "/v1/email/send", Body: sendInvoice(`, "locale": "pt-BR"`)})
	if preview.Status != http.StatusOK || r.Status != http.StatusAccepted {
		t.Fatalf("%d %s, %d %s", preview.Status, preview.Body, r.Status, r.Body)
	}
	var subject, html string
	if err := g.SQL.QueryRowContext(t.Context(), `SELECT payload ->> 'subject', html FROM email_outbox WHERE id = $1`, r.json(t)["outboxId"]).Scan(&subject, &html); err != nil {
		t.Fatal(err)
	}
	if want := preview.json(t); subject != want["subject"] || html != want["html"] || subject != "Nota 7" ||
		html != `<p>Ana &lt;b&gt;</p><ul><li>Café</li><li>Pão &amp; manteiga</li></ul>` {
		t.Errorf("%s %s, want %v", subject, html, want)
	}
	shown := g.do(t, call{Path: fmt.Sprint("/v1/email/", r.json(t)["outboxId"])})
	if got := fmt.Sprint(shown.json(t)["template"]); got != "map[locale:pt name:invoice version:1]" {
		t.Errorf("%s", got)
	}
	if r := g.do(t, call{Method: http.MethodPost, Path: "/v1/email/send", Body: sendInvoice(`, "version": 1`)}); r.Status != http.StatusAccepted {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	for change, want := range map[string]string{
		`"template": {"name": "invoice", "data": {"number": 1, "lines": []}}`:                                 "template.data.customer.name VARIABLE_MISSING",
		`"template": {"name": "invoice", "data": {"number": "a\nb", "customer": {"name": "x"}, "lines": []}}`: "template.data.number VALUE_CONTROL",
		`"template": {"name": "other"}`:                                                                                                   "template.name TEMPLATE_NOT_FOUND",
		`"template": {"name": "invoice", "version": 9}`:                                                                                   "template.name TEMPLATE_NOT_FOUND",
		`"template": {"name": "invoice", "data": [1]}`:                                                                                    "template.data INVALID_DATA",
		`"subject": "x", "template": {"name": "invoice", "data": ` + invoiceData + `}`:                                                    "subject NOT_ALLOWED",
		`"html": "<p>x</p>", "template": {"name": "invoice", "data": ` + invoiceData + `}`:                                                "html NOT_ALLOWED",
		`"template": {"name": "invoice", "locale": "pt-br", "data": ` + invoiceData + `}`:                                                 "template.locale INVALID_LOCALE",
		`"template": {"name": "invoice", "data": {"number": "` + strings.Repeat("9", 200) + `", "customer": {"name": "x"}, "lines": []}}`: "template SUBJECT_LENGTH",
	} {
		r := g.do(t, call{Method: http.MethodPost, Path: "/v1/email/send", Body: `{"to": "ana@example.com", "recipient": {"externalId": "c-1"}, ` + change + `}`})
		if r.Status != http.StatusUnprocessableEntity {
			t.Errorf("%s: %d %s", change, r.Status, r.Body)
			continue
		}
		faults := r.problem(t).Errors
		if got := faults[0].Field + " " + faults[0].Code; got != want || len(faults) > 1 {
			t.Errorf("%s: %v, want %s", change, faults, want)
		}
	}
}

// Half of a surrogate pair and U+0000 in the data of a template are faults of their field, with and without
// an Idempotency-Key.
func TestTemplates_DataWithBadCharacters(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	if r := g.template(t, http.MethodPost, "", `{"name": "hello", "subject": "Olá {{nome}}", "html": "<p>x</p>", "publish": true}`); r.Status != http.StatusCreated {
		t.Fatalf("%d %s", r.Status, r.Body)
	}
	refused := func(r reply, field string) {
		t.Helper()
		if r.Status != http.StatusUnprocessableEntity || len(r.problem(t).Errors) != 1 {
			t.Errorf("%d %s", r.Status, r.Body)
			return
		}
		if f := r.problem(t).Errors[0]; f.Field != field || f.Code != "BAD_CHARACTER" {
			t.Errorf("%+v, want a fault of %s", f, field)
		}
	}
	before := g.rows(t)
	for _, bad := range []string{`Ana \ud83d`, `\ude00`, `a\u0000b`} {
		data := fmt.Sprintf(`{"nome": "%s"}`, bad)
		email := `{"to": "ana@example.com", "recipient": {"externalId": "1"}, "template": {"name": "hello", "data": ` + data + `}}`
		for range 2 {
			refused(g.keyed(t, "k1", email), "template.data.nome")
		}
		refused(g.send(t, email), "template.data.nome")
		refused(g.batch(t, "", "", batchBody(email)), "emails[0].template.data.nome")
		if b := g.batch(t, "?mode=partial", "", batchBody(email, emailBody(nil))).batch(t); b.Rejected != 1 || b.Emails[0].Error.Errors[0].Field != "emails[0].template.data.nome" {
			t.Errorf("%+v", b)
		}
		before++ // the valid email of the partial batch
		refused(g.template(t, http.MethodPost, "/hello/preview", `{"data": `+data+`}`), "data.nome")
		refused(g.template(t, http.MethodPost, "", `{"name": "b", "subject": "s", "html": "<p>x</p>", "variables": [{"name": "nome", "default": {"a": ["`+bad+`"]}}]}`), "variables[0].default.a[0]")
	}
	if n := g.rows(t); n != before {
		t.Errorf("%d rows, want %d", n, before)
	}
	// The rejected request has not reserved the key.
	if r := g.keyed(t, "k1", `{"to": "ana@example.com", "recipient": {"externalId": "1"}, "template": {"name": "hello", "data": {"nome": "Ana \ud83d\ude00"}}}`); r.Status != http.StatusAccepted {
		t.Errorf("%d %s", r.Status, r.Body)
	}
}

// A replay has the response of the first request, whatever was published since.
func TestTemplates_Replay(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	g.invoiceTemplate(t, "", "Invoice {{number}}")
	send := func() reply {
		return g.do(t, call{Method: http.MethodPost, Path: "/v1/email/send", Body: sendInvoice(""), Header: map[string]string{"Idempotency-Key": "k-1"}})
	}
	first := send()
	g.invoiceTemplate(t, "", "Second {{number}}")
	if again := send(); again.Status != http.StatusAccepted || again.Body != first.Body {
		t.Errorf("after a publication: %d %s, want %s", again.Status, again.Body, first.Body)
	}
	if r := g.template(t, http.MethodDelete, "/invoice", ""); r.Status != http.StatusNoContent {
		t.Fatalf("%d %s", r.Status, r.Body)
	}
	if again := send(); again.Status != http.StatusAccepted || again.Body != first.Body {
		t.Errorf("after the deletion: %d %s, want %s", again.Status, again.Body, first.Body)
	}
}

func TestTemplates_OtherCompanyAndScopes(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	g.invoiceTemplate(t, "", "Invoice {{number}}")
	other := g.newKey(t, g.Database.Company(t), nil)
	for path, method := range map[string]string{"/invoice": http.MethodGet, "/invoice/versions/1": http.MethodGet, "/invoice?locale=pt": http.MethodDelete} {
		if r := g.do(t, call{Method: method, Path: "/v1/templates" + path, Key: other.String()}); r.Status != http.StatusNotFound {
			t.Errorf("%s %s of another company: %d %s", method, path, r.Status, r.Body)
		}
	}
	if r := g.do(t, call{Method: http.MethodPost, Path: "/v1/email/send", Key: other.String(), Body: sendInvoice("")}); r.Status != http.StatusUnprocessableEntity {
		t.Errorf("a send with another company's template: %d %s", r.Status, r.Body)
	}
	reader := g.newKey(t, g.Company, func(k *tenant.APIKey) { k.Scopes = []string{apikey.TemplatesRead} })
	if r := g.do(t, call{Method: http.MethodDelete, Path: "/v1/templates/invoice", Key: reader.String()}); r.Status != http.StatusForbidden {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	if r := g.do(t, call{Path: "/v1/templates/invoice", Key: reader.String()}); r.Status != http.StatusOK {
		t.Errorf("%d %s", r.Status, r.Body)
	}
}

// A preview and a send give the same content or the same fault, also if values leave a part blank.
func TestTemplates_PreviewAndSendAgree(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	const mark = "\ufeff"
	for name, c := range map[string]struct {
		subject, html, text, data string
		want                      string // subject|html|text, or field and code
	}{
		"byte order marks":   {mark + "S", mark + "<p>x</p>", mark + "T", `{}`, "S|<p>x</p>|T"},
		"marks of values":    {"{{a}}S", "{{a}}<p>x</p>", "{{a}}T", `{"a": "\ufeff"}`, "S|<p>x</p>|T"},
		"a blank text":       {"S", "<p>x</p>", "{{a}}\n", `{"a": ""}`, "S|<p>x</p>|x\n"},
		"a blank html":       {"S", "{{a}}\n", "T", `{"a": " "}`, "S||T"},
		"an html that shows": {"S", "<p>{{a}}</p>", "T", `{"a": ""}`, "html SHOWS_NOTHING"},
		"a blank subject":    {"{{a}}", "<p>x</p>", "", `{"a": "  "}`, "subject REQUIRED"},
		"no body":            {"S", "{{a}}\n", "{{a}} ", `{"a": ""}`, "html REQUIRED"},
		"neither":            {"{{a}}", "{{a}}\n", "{{a}}\n", `{"a": "\u200b"}`, "subject REQUIRED, html REQUIRED"},
	} {
		source, err := json.Marshal(map[string]any{"name": "t", "subject": c.subject, "html": c.html, "text": c.text, "publish": true})
		if err != nil {
			t.Fatal(err)
		}
		if r := g.template(t, http.MethodPost, "", string(source)); r.Status != http.StatusCreated && r.Status != http.StatusOK {
			t.Fatalf("%s: %d %s", name, r.Status, r.Body)
		}
		preview := g.template(t, http.MethodPost, "/t/preview", `{"data": `+c.data+`}`)
		sent := g.do(t, call{Method: http.MethodPost, Path: "/v1/email/send", Body: `{"to": "ana@example.com", "recipient": {"externalId": "c-1"}, "template": {"name": "t", "data": ` + c.data + `}}`})
		if got := sentContent(t, g, sent); got != c.want {
			t.Errorf("%s: a send makes %q, want %q", name, got, c.want)
		}
		got := faultsIn(t, preview)
		if preview.Status == http.StatusOK {
			made := preview.json(t)
			got = fmt.Sprint(made["subject"], "|", value(made, "html"), "|", value(made, "text"))
		}
		if got != c.want {
			t.Errorf("%s: the preview is %q, want %q", name, got, c.want)
		}
	}
}

// A preview has no attachments, and shows an html that refers to one.
func TestTemplates_PreviewWithContentID(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	if r := g.template(t, http.MethodPost, "", `{"name": "t", "subject": "S", "html": "<img src=\"cid:logo\"><p>Oi</p>", "publish": true}`); r.Status != http.StatusCreated {
		t.Fatalf("%d %s", r.Status, r.Body)
	}
	if r := g.template(t, http.MethodPost, "/t/preview", `{}`); r.Status != http.StatusOK || value(r.json(t), "text") != "Oi\n" {
		t.Errorf("%d %s", r.Status, r.Body)
	}
}

// value returns a text field of a response, "" if it is missing.
func value(answer map[string]any, name string) string {
	text, _ := answer[name].(string)
	return text
}

func faultsIn(tb testing.TB, r reply) string {
	tb.Helper()
	if r.Status != http.StatusUnprocessableEntity {
		return ""
	}
	var all []string
	for _, f := range r.problem(tb).Errors {
		all = append(all, f.Field+" "+f.Code)
	}
	return strings.Join(all, ", ")
}

// sentContent returns what the worker sends for an accepted email, or the faults of a rejected one.
func sentContent(tb testing.TB, g *gateway, r reply) string {
	tb.Helper()
	if r.Status != http.StatusAccepted {
		return faultsIn(tb, r)
	}
	var subject, html, text string
	err := g.SQL.QueryRowContext(tb.Context(), `SELECT payload ->> 'subject', html, coalesce(text_body, '') FROM email_outbox WHERE id = $1`, r.json(tb)["outboxId"]).Scan(&subject, &html, &text)
	if err != nil {
		tb.Fatal(err)
	}
	if text == "" {
		text = plaintext.FromHTML(html)
	}
	return subject + "|" + html + "|" + text
}
