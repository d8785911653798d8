package template_test

import (
	"strings"
	"testing"

	"email-gateway/shared/template"
)

// BenchmarkRender_Accept is the cost at accept: an invoice of 20 lines in 10 KiB of html, the largest email that
// RenderQuickly renders, and what the limit on tags allows.
func BenchmarkRender_Accept(b *testing.B) {
	row := `<tr><td style="padding:4px 8px">{{description}}</td><td>{{amount}}</td><td><a href="https://x.example/i?id={{id}}">ver</a></td></tr>`
	line := `{"description": "Café & pão", "amount": "12,50", "id": 17},`
	loops := "{{#lines}}{{#lines}}{{#lines}}{{/lines}}{{/lines}}{{/lines}}x"
	for name, c := range map[string]struct {
		html string
		n    int
	}{
		"invoice": {"<table>{{#lines}}" + row + "{{/lines}}</table>" + strings.Repeat("<p>Olá</p>", 700), 20},
		"quickly": {"<table>{{#lines}}" + row + "{{/lines}}</table>", 400},
		"most":    {loops, 500},
	} {
		parsed, faults := template.Parse(template.Source{Subject: "Nota {{number}}", HTML: c.html})
		if len(faults) > 0 {
			b.Fatal(faults)
		}
		raw := []byte(`{"number": 7, "lines": [` + strings.TrimSuffix(strings.Repeat(line, c.n), ",") + `]}`)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				data, err := template.ReadData(raw)
				if err != nil {
					b.Fatal(err)
				}
				parsed.Render("data", data)
			}
		})
		b.Run(name+"/data", func(b *testing.B) {
			for b.Loop() {
				if _, err := template.ReadData(raw); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
