package template_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"email-gateway/shared/template"
)

// FuzzEscaping renders a template with harmless and with hostile data of the same shape: the elements,
// their attributes' names and the number of texts must not change.
func FuzzEscaping(f *testing.F) {
	for _, seed := range []string{
		invoice, `<a href="{{v}}" title='{{#s}}{{v}}{{/s}}'>{{v}}</a>`, `<title>{{#s}}{{v}}{{/s}}</title>{{v}}`, `<pre>{{v}}</pre>{{#s}}<pre>{{v}}{{/s}}`,
		`{{#s}}<svg><title>{{/s}}{{v}}</title>`, `<p {{#s}}title="{{v}}"{{/s}}>`, `{{#s}}<{{/s}}{{v}}>`, `{{#s}}&#{{/s}}{{v}}`, `<!--{{#s}}--><p>{{v}}{{/s}}`, `<img srcset="{{v}} 2x, {{v}}">`,
	} {
		f.Add(seed, `"><script>alert(1)</script>`)
		f.Add(seed, "javascript:alert(1)//' onload='x")
		f.Add(seed, "&lt\n-->]]>")
	}
	f.Fuzz(func(t *testing.T, source, hostile string) {
		parsed, faults := template.Parse(template.Source{Subject: "s", HTML: source})
		if len(faults) > 0 {
			return
		}
		shapes := make([][]string, 0, 2)
		for _, value := range []string{"x", "https://x.example/" + hostile, hostile} {
			element := map[string]any{}
			for _, name := range []string{"v", "number", "description", "amount", "last", "payUrl"} {
				element[name] = value
			}
			data := map[string]any{"s": []any{element, element}, "lines": []any{element, element}, "customer": map[string]any{"name": value}}
			for name := range element {
				data[name] = value
			}
			encoded, err := json.Marshal(data)
			if err != nil {
				t.Fatal(err)
			}
			read, err := template.ReadData(encoded)
			if err != nil {
				return
			}
			rendered, faults := parsed.Render("data", read)
			if len(faults) == 0 && value != "" {
				shapes = append(shapes, shape(rendered.HTML))
			}
		}
		for _, s := range shapes {
			if !slices.Equal(s, shapes[0]) {
				t.Errorf("the structure changes:\n%q\n%q", shapes[0], s)
			}
		}
	})
}

// shape lists the tags of a document.
func shape(document string) (tags []string) {
	z := html.NewTokenizer(strings.NewReader(document))
	for {
		switch z.Next() {
		case html.ErrorToken:
			return tags
		case html.StartTagToken, html.SelfClosingTagToken, html.EndTagToken:
			token := z.Token()
			tag := token.Type.String() + token.Data
			for _, a := range token.Attr {
				tag += " " + a.Key
			}
			tags = append(tags, tag)
		case html.CommentToken, html.DoctypeToken:
			tags = append(tags, z.Token().String())
		}
	}
}

// FuzzParse must neither panic nor accept an unescaped variable.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"{{#a}}{{/a}}", "{{{a}}}", "\\{{a}}", "{{!", "{{#a}}\r\n{{^b}}\n{{/b}}{{/a}}", " {{#a}}\n  {{.}}\n {{/a}} \n"} {
		f.Add(seed, seed)
	}
	f.Fuzz(func(t *testing.T, subject, text string) {
		parsed, faults := template.Parse(template.Source{Subject: subject, HTML: text, Text: text})
		if len(faults) > 0 {
			return
		}
		data, err := template.ReadData([]byte(`{"a": [{"b": "x"}], "b": false}`))
		if err != nil {
			t.Fatal(err)
		}
		if made, faults := parsed.Render("data", data); len(faults) == 0 && strings.ContainsAny(made.Subject, "\r\n") {
			t.Errorf("%q", made.Subject)
		}
	})
}

func BenchmarkRender(b *testing.B) {
	parsed, faults := template.Parse(template.Source{Subject: "Nota {{number}}", HTML: invoice, Variables: []template.Variable{{Name: "payUrl", Required: new(bool)}}})
	if len(faults) > 0 {
		b.Fatal(faults)
	}
	raw := []byte(`{"number": "1", "customer": {"name": "Ana"}, "lines": [` + strings.Repeat(`{"description": "Café", "amount": 12.5, "last": false},`, 19) + `{"description": "x", "amount": 1, "last": true}]}`)
	b.ReportAllocs()
	for b.Loop() {
		data, err := template.ReadData(raw)
		if err != nil {
			b.Fatal(err)
		}
		if _, faults := parsed.Render("d", data); len(faults) > 0 {
			b.Fatal(faults)
		}
	}
}
