package httpapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"email-gateway/shared/store/storetest"
)

// natal is a template whose variables are columns.
const natal = `{"name": "natal", "publish": true, "subject": "Olá, {{nome}}{{#vip}} ({{vip}}){{/vip}}",
	"html": "<p>{{nome}} de {{endereco.cidade}}: <a href=\"{{link}}\">ver</a></p>{{^vip}}<p>{{note}}</p>{{/vip}}<a href=\"{{unsubscribe_url}}\">sair</a>",
	"variables": [{"name": "nome", "default": "cliente"}, {"name": "note", "required": false, "description": "A line"}]}`

// natalFile has a row with everything, one with empty cells, one with a wrong link, and a duplicate.
const natalFile = "email;Nome;Endereço.Cidade;Link;VIP\n" +
	"ana@example.com;<Ana>;Recife;https://x.example/?a=1&b=2;ouro\n" +
	"bia@example.com;;;https://x.example/;\n" +
	"caio@example.com;Caio;Natal;javascript:x;\n" +
	"ANA@example.com;Ana;Recife;https://x.example/;\n"

func natalForm(more ...part) []part {
	return append([]part{{name: "template", value: "natal"}, {name: "file", filename: "natal.csv", value: natalFile}}, more...)
}

func (g *gateway) natal(tb testing.TB, change func(body string) string) {
	tb.Helper()
	if r := g.template(tb, http.MethodPost, "", change(natal)); r.Status != http.StatusCreated {
		tb.Fatalf("%d %s", r.Status, r.Body)
	}
}

func asWritten(body string) string { return body }

// A mailing with a stored template has the columns of its file as data and keeps its version.
func TestMailing_Template(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	g.natal(t, asWritten)
	dry := g.upload(t, natalForm(part{name: "dryRun", value: "true"}), nil)
	if dry.Status != http.StatusAccepted || dry.json(t)["accepted"] != 2.0 || dry.json(t)["invalid"] != 1.0 || dry.json(t)["duplicates"] != 1.0 {
		t.Fatalf("%d %s", dry.Status, dry.Body)
	}
	preview, _ := dry.json(t)["preview"].([]any)
	first, _ := preview[0].(map[string]any)
	html := fmt.Sprint(first["html"])
	if first["subject"] != "Olá, <Ana> (ouro)" || !strings.HasPrefix(html, `<p>&lt;Ana&gt; de Recife: <a href="https://x.example/?a=1&amp;b=2">ver</a></p><a href="`) ||
		!strings.HasPrefix(fmt.Sprint(first["text"]), "<Ana> de Recife: ver <https://x.example/?a=1&b=2>") {
		t.Errorf("%v", first)
	}

	key := map[string]string{"Idempotency-Key": "k-1"}
	r := g.upload(t, natalForm(), key)
	if r.Status != http.StatusAccepted || r.json(t)["emptyFields"] != 1.0 || fmt.Sprint(r.json(t)["template"]) != "map[name:natal version:1]" || r.json(t)["warnings"] != nil {
		t.Fatalf("%d %s", r.Status, r.Body)
	}
	id := fmt.Sprint(r.json(t)["mailingId"])
	g.natal(t, func(body string) string { return strings.ReplaceAll(body, "Olá", "Oi") })
	if again := g.upload(t, natalForm(), nil); again.Body != r.Body || again.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("after a publication: %d %s", again.Status, again.Body)
	}
	for _, other := range []part{{name: "templateVersion", value: "1"}, {name: "templateLocale", value: "pt"}} {
		if r := g.upload(t, natalForm(other), nil); r.Status != http.StatusConflict {
			t.Errorf("%v: %d %s", other, r.Status, r.Body)
		}
	}
	if r := g.template(t, http.MethodDelete, "/natal", ""); r.Status != http.StatusNoContent {
		t.Fatalf("%d %s", r.Status, r.Body)
	}
	if again := g.upload(t, natalForm(), key); again.Body != r.Body {
		t.Errorf("after the deletion: %d %s", again.Status, again.Body)
	}
	shown := g.do(t, call{Path: "/mailings/" + id}).json(t)
	if fmt.Sprint(shown["template"]) != "map[name:natal version:1]" || shown["subject"] != "Olá, {{nome}}{{#vip}} ({{vip}}){{/vip}}" {
		t.Errorf("%v", shown)
	}
	var stored struct{ HTML, Variables, Fields, Rows string }
	if err := g.SQL.QueryRowContext(t.Context(), `SELECT html, template_variables, array_to_string(fields, ' '),
		(SELECT string_agg(array_to_string(e.fields, ','), ' ' ORDER BY line_no) FROM mailing_entries e WHERE e.mailing_id = m.id) FROM mailings m WHERE id = $1`, id).
		Scan(&stored.HTML, &stored.Variables, &stored.Fields, &stored.Rows); err != nil {
		t.Fatal(err)
	}
	if stored.Variables != `[{"name":"nome","default":"cliente"},{"name":"note","required":false}]` || stored.Fields != "nome vip endereco.cidade link" ||
		stored.Rows != "<Ana>,ouro,Recife,https://x.example/?a=1&b=2 ,,,https://x.example/" || !strings.Contains(stored.HTML, "{{^vip}}") {
		t.Errorf("%+v", stored)
	}
	verdicts := g.do(t, call{Path: "/mailings/" + id + "/verdicts"}).Body
	if want := "line,column,code,lastLine\r\n3,Endereço.Cidade,EMPTY_FIELD,\r\n4,Link,INVALID_LINK,\r\n5,email,DUPLICATE,\r\n"; verdicts != want {
		t.Errorf("%q, want %q", verdicts, want)
	}
}

func TestMailing_TemplateRefused(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	g.natal(t, asWritten)
	form := func(columns string, more ...part) []part {
		return append([]part{{name: "template", value: "natal"}, {name: "file", filename: "a.csv", value: columns + "\na@example.com\n"}}, more...)
	}
	const all = "email;nome;endereco.cidade;link;vip"
	for _, change := range [][2]string{{"{{note}}", "{{cpf}}"}, {"Olá, {{nome}}", "Olá, {{#vip}}{{token}}{{/vip}}"}} { // versions 2 and 3
		g.natal(t, func(body string) string {
			return strings.Replace(strings.Replace(body, change[0], change[1], 1), `"publish": true`, `"publish": false`, 1)
		})
	}
	for name, c := range map[string]struct {
		form []part
		want string
	}{
		"columns that are missing": {form("email;nome;vip"), "template UNKNOWN_MERGE_FIELD"},
		"a tax id":                 {form(strings.Replace(all, "link", "link;cpf", 1), part{name: "templateVersion", value: "2"}), "template FORBIDDEN_MERGE_FIELD"},
		"a token in the subject":   {form(all, part{name: "templateVersion", value: "3"}), "template FORBIDDEN_MERGE_FIELD"},
		"a reserved column":        {form(all + ";unsubscribe_url"), "file RESERVED_COLUMN"},
		"a subject too":            {form(all, part{name: "subject", value: "x"}), "subject NOT_ALLOWED"},
		"a text too":               {form(all, part{name: "text", value: "x"}), "text NOT_ALLOWED"},
		"an unknown version":       {form(all, part{name: "templateVersion", value: "9"}), "template TEMPLATE_NOT_FOUND"},
		"no version":               {form(all, part{name: "templateVersion", value: "0"}), "templateVersion OUT_OF_RANGE"},
		"a wrong locale":           {form(all, part{name: "templateLocale", value: "pt_BR"}), "templateLocale INVALID_LOCALE"},
		"an unknown template":      {given(part{name: "subject"}, part{name: "html"}, part{name: "template", value: "other"}), "template TEMPLATE_NOT_FOUND"},
		"a wrong name":             {given(part{name: "subject"}, part{name: "html"}, part{name: "template", value: "../natal"}), "template INVALID_NAME"},
		"a locale alone":           {given(part{name: "templateLocale", value: "pt"}), "templateLocale NOT_ALLOWED"},
		"neither":                  {given(part{name: "subject"}, part{name: "html"}), "subject REQUIRED, html REQUIRED"},
	} {
		r := g.upload(t, c.form, nil)
		if r.Status != http.StatusUnprocessableEntity {
			t.Errorf("%s: %d %s", name, r.Status, r.Body)
			continue
		}
		var got []string
		for _, f := range r.problem(t).Errors {
			got = append(got, f.Field+" "+f.Code)
		}
		if joined := strings.Join(got, ", "); joined != c.want {
			t.Errorf("%s: %s, want %s", name, joined, c.want)
		}
	}
	if n := storetest.Ask[int](t, g.Database, `SELECT count(*) FROM mailings`); n > 0 || len(g.Storage.files(t)) > 0 {
		t.Errorf("%d mailings and %v are left", n, g.Storage.files(t))
	}
	other := g.newKey(t, g.Database.Company(t), nil)
	c := uploadCall(t, form(all), nil)
	c.Key = other.String()
	if r := g.do(t, c); r.Status != http.StatusUnprocessableEntity || !strings.Contains(r.Body, "TEMPLATE_NOT_FOUND") {
		t.Errorf("another company's template: %d %s", r.Status, r.Body)
	}
}

// The html of a template may only refer to attachments of the mailing.
func TestMailing_TemplateContentIDs(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	if r := g.template(t, http.MethodPost, "", `{"name": "logo", "subject": "s", "html": "<img src='cid:logo'><img src='cid:map'>", "publish": true}`); r.Status != http.StatusCreated {
		t.Fatalf("%d %s", r.Status, r.Body)
	}
	id, _ := g.uploadFile(t, png).json(t)["id"].(string)
	image := func(contentID string) fields {
		return fields{"filename": contentID + ".png", "contentType": "image/png", "fileId": id, "contentId": contentID}
	}
	form := func(more ...part) []part {
		return append([]part{{name: "template", value: "logo"}, {name: "file", filename: "a.csv", value: "email\na@example.com\n"}}, more...)
	}
	for name, c := range map[string]struct {
		form []part
		want []string
	}{
		"no attachments":   {form(), []string{"cid:logo", "cid:map"}},
		"one is missing":   {form(attaching(t, image("logo"))), []string{"cid:map"}},
		"with another one": {form(attaching(t, image("logo"), image("plan"))), []string{"cid:map"}},
	} {
		r := g.upload(t, c.form, nil)
		if r.Status != http.StatusUnprocessableEntity {
			t.Errorf("%s: %d %s", name, r.Status, r.Body)
			continue
		}
		found := r.problem(t).Errors
		if len(found) != len(c.want) {
			t.Errorf("%s: %v, want %v", name, found, c.want)
			continue
		}
		for i, f := range found {
			if f.Field != "template" || f.Code != "UNKNOWN_CONTENT_ID" || !strings.Contains(f.Message, c.want[i]+",") {
				t.Errorf("%s: %v, want %s", name, f, c.want[i])
			}
		}
	}
	if r := g.upload(t, form(attaching(t, image("logo"), image("map"))), nil); r.Status != http.StatusAccepted {
		t.Errorf("%d %s", r.Status, r.Body)
	}
}

// A mailing may have text alone, of the request or of a template.
func TestMailing_TextAlone(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	list := file("email;nome\na@example.com;Ana\nb@example.com;\n")
	g.mail(t, []part{{name: "subject", value: "Olá"}, {name: "text", value: "{{nome}}: {{unsubscribe_url}}"}, list})
	if r := g.template(t, http.MethodPost, "", `{"name": "aviso", "publish": true, "subject": "Aviso", "text": "{{#nome}}Olá, {{nome}}{{/nome}}"}`); r.Status != http.StatusCreated {
		t.Fatalf("%d %s", r.Status, r.Body)
	}
	list.filename = "outra.csv"
	r := g.upload(t, []part{{name: "template", value: "aviso"}, list}, nil)
	if r.Status != http.StatusAccepted || r.json(t)["accepted"] != 1.0 || r.json(t)["invalid"] != 1.0 || !strings.Contains(r.Body, "text has no {{unsubscribe_url}}") {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	verdicts := g.do(t, call{Path: "/mailings/" + fmt.Sprint(r.json(t)["mailingId"]) + "/verdicts"}).Body
	if !strings.Contains(verdicts, "3,,EMPTY_BODY") {
		t.Errorf("%s", verdicts)
	}
	var texts []string
	rows, err := g.SQL.QueryContext(t.Context(), `SELECT html || '|' || text_body || '|' || coalesce(template, '') FROM mailings ORDER BY id`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			t.Fatal(err)
		}
		texts = append(texts, text)
	}
	if diff := cmp.Diff([]string{"|{{nome}}: {{unsubscribe_url}}|", "|{{#nome}}Olá, {{nome}}{{/nome}}|aviso@1"}, texts); diff != "" || rows.Err() != nil {
		t.Error(diff, rows.Err())
	}
}

// A row has the object of a section if one of its columns has a value, whatever the template writes of it.
func TestMailing_TemplateObject(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	const body = `{"name": "pj", "publish": true, "subject": "{{#Empresa}}PJ{{/Empresa}}{{^Empresa}}PF{{/Empresa}}", "text": "Oi"}`
	if r := g.template(t, http.MethodPost, "", body); r.Status != http.StatusCreated {
		t.Fatalf("%d %s", r.Status, r.Body)
	}
	form := []part{{name: "template", value: "pj"}, {name: "file", filename: "pj.csv", value: "email;empresa.razão social;EMPRESA.CNPJ\n" +
		"ana@example.com;Acme;\nbia@example.com;;11.222.333/0001-81\n"}}
	dry := g.upload(t, append(form, part{name: "dryRun", value: "true"}), nil)
	preview, _ := dry.json(t)["preview"].([]any)
	var subjects []string
	for _, p := range preview {
		one, _ := p.(map[string]any)
		subjects = append(subjects, fmt.Sprint(one["subject"]))
	}
	if got := strings.Join(subjects, " "); got != "PJ PF" {
		t.Errorf("%q of %s", got, dry.Body)
	}
	r := g.upload(t, form, nil)
	var fields, rows string
	if err := g.SQL.QueryRowContext(t.Context(), `SELECT array_to_string(fields, ' '),
		(SELECT string_agg(array_to_string(e.fields, ','), ' ' ORDER BY line_no) FROM mailing_entries e WHERE e.mailing_id = m.id) FROM mailings m WHERE id = $1`, r.json(t)["mailingId"]).
		Scan(&fields, &rows); err != nil || fields != "Empresa.razaosocial" || rows != "Acme " {
		t.Errorf("fields %q, rows %q, %v", fields, rows, err)
	}
}

// An empty cell is reported within the section of its object, and refused with emptyFields=reject, although a column
// outside has that name.
func TestMailing_TemplateObjectEmptyCell(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	const body = `{"name": "p", "publish": true, "subject": "s", "html": "<p>{{nome}} {{telefone}}</p>{{#responsavel}}<p>{{nome}}: {{telefone}}</p>{{/responsavel}}"}`
	if r := g.template(t, http.MethodPost, "", body); r.Status != http.StatusCreated {
		t.Fatalf("%d %s", r.Status, r.Body)
	}
	form := []part{{name: "template", value: "p"}, {name: "dryRun", value: "true"}, {name: "file", filename: "p.csv", value: "email;nome;telefone;responsavel.nome;responsavel.telefone\n" +
		"ana@example.com;Ana;11 9999-0000;Joao;\n"}}
	if dry := g.upload(t, form, nil); dry.json(t)["emptyFields"] != 1.0 || !strings.Contains(fmt.Sprint(dry.json(t)["preview"]), "<p>Joao: </p>") {
		t.Errorf("%s", dry.Body)
	}
	if dry := g.upload(t, append(form, part{name: "emptyFields", value: "reject"}), nil); dry.json(t)["accepted"] != 0.0 {
		t.Errorf("%s", dry.Body)
	}
}
