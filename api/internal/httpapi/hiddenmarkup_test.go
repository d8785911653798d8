package httpapi_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// Comments and defaults of a template do not hide from the check of html what a client would read.
func TestTemplates_HiddenMarkup(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	for i, html := range []string{
		`<p>Oi</p><img src="x" on{{! }}error="alert(1)">`,
		`<p>Oi</p><a href="search-{{! }}ms:query=x&crumb=location:\\evil\s">ver</a>`,
		`<p>Oi</p><scr{{! }}ipt>alert(1)</scr{{! }}ipt>`,
		`<p>Oi</p>{{email|<style>}}<script>alert(1)</script>{{email|</style>}}`,
		`<p>Oi</p>{{! <!-- }}<script>alert(1)</script>{{! --> }}`,
	} {
		name := fmt.Sprint("t", i)
		body := func(html string) string {
			text, err := json.Marshal(map[string]any{"name": name, "subject": "s", "html": html, "publish": true})
			if err != nil {
				t.Fatal(err)
			}
			return string(text)
		}
		if r := g.template(t, http.MethodPost, "", body(html)); r.Status != http.StatusUnprocessableEntity || !strings.Contains(r.Body, "INVALID_TEMPLATE") {
			t.Errorf("%s: %d %.300s", html, r.Status, r.Body)
		}
		// One that was stored by a release that accepted it.
		if r := g.template(t, http.MethodPost, "", body("<p>Oi</p>")); r.Status != http.StatusCreated && r.Status != http.StatusOK {
			t.Fatalf("%d %s", r.Status, r.Body)
		}
		g.Run(t, `UPDATE template_versions SET html = $2 WHERE name = $1`, name, html)
		form := []part{{name: "template", value: name}, {name: "file", filename: "a.csv", value: "email\na@example.com\n"}}
		r := g.upload(t, form, nil)
		if r.Status != http.StatusUnprocessableEntity || !strings.Contains(r.Body, "INVALID_TEMPLATE") {
			t.Errorf("a mailing with %s: %d %.300s", html, r.Status, r.Body)
		}
	}
}

// What is only in a comment or default is not sent: it refuses no template and needs no attachment. Faults have the
// line of the source.
func TestTemplates_CommentsAreNotChecked(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	const harmless = `{"name": "a", "publish": true, "subject": "s", "html": "{{! old: <img src='cid:logo' onclick='a()'> }}<p>{{nome|<img src='cid:x'>}}</p>"}`
	if r := g.template(t, http.MethodPost, "", harmless); r.Status != http.StatusCreated {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	file := part{name: "file", filename: "a.csv", value: "email;nome\na@example.com;Ana\n"}
	if r := g.upload(t, []part{{name: "template", value: "a"}, file}, nil); r.Status != http.StatusAccepted {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	file.filename = "b.csv"
	own := []part{{name: "subject", value: "s"}, {name: "html", value: "<p>{{nome|<img src='cid:x'>}}</p>"}, file}
	if r := g.upload(t, own, nil); r.Status != http.StatusAccepted {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	r := g.template(t, http.MethodPost, "", `{"name": "b", "subject": "s", "html": "{{! one\n two }}\n<p>{{#s}}\n{{/s}}\n</p><script>1</script>"}`)
	if r.Status != http.StatusUnprocessableEntity || !strings.Contains(r.Body, "in line 5") {
		t.Errorf("%d %s", r.Status, r.Body)
	}
}
