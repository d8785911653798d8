package mailmerge_test

import (
	"strings"
	"testing"

	"email-gateway/shared/mailmerge"
)

// newsletter is a document of 20 KB with five fields.
var newsletter = `<!DOCTYPE html><html><head><title>{{campanha}}</title></head><body><p>Olá {{nome}}, da {{razão social}}</p>` +
	strings.Repeat("<p style=\"margin: 0\">Ol&aacute; <b>tudo bem?</b></p>\n", 360) +
	`<a href="https://example.com/?cupom={{cupom}}">Comprar</a><a href="{{unsubscribe_url}}">Sair</a></body></html>`

func BenchmarkBound_AppendTo(b *testing.B) {
	bound := bind(b, newsletter)
	values := []string{"Black & Friday", "Maria <da> Silva", "Acme Ltda.", "a b", "https://gw.example/u/" + strings.Repeat("aB3_", 80)}
	b.Run("new buffer", func(b *testing.B) {
		b.SetBytes(int64(len(newsletter)))
		b.ReportAllocs()
		for b.Loop() {
			if _, err := bound.AppendTo(nil, values); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("same buffer", func(b *testing.B) {
		var buffer []byte
		b.SetBytes(int64(len(newsletter)))
		b.ReportAllocs()
		for b.Loop() {
			var err error
			if buffer, err = bound.AppendTo(buffer[:0], values); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkParseHTML(b *testing.B) {
	b.SetBytes(int64(len(newsletter)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := mailmerge.ParseHTML(newsletter); err != nil {
			b.Fatal(err)
		}
	}
}
