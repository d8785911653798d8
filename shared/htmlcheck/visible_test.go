package htmlcheck_test

import (
	"testing"

	"email-gateway/shared/htmlcheck"
)

func TestHasVisibleContent(t *testing.T) {
	t.Parallel()
	for _, body := range []string{
		"", " \r\n\t", "\u200b", "\ufeff", "\u00a0", "&nbsp;", "&#8203;", "&zwnj;&zwj;&#xFEFF;", "<!-- -->", "<!---->", "<!-- a comment -->", "<p></p>", "<p> </p><br>", "<p>&nbsp;</p>",
		"<html><head><title>Oferta</title><style>p { color: red }</style></head><body></body></html>", "<!doctype html><html><body><!-- x --> </body></html>",
		"<style>p{}</style>", "<table><tr><td>&#160;</td></tr></table>", "<div hidden></div>", "<!--[if mso]><![endif]-->",
	} {
		if htmlcheck.HasVisibleContent(body) {
			t.Errorf("%q shows nothing", body)
		}
	}
	for _, body := range []string{
		"a", "<p>x</p>", "<p>{{corpo}}</p>", `<img src="https://acme.example/a.png">`, "<hr>", "5 < 6", "<p>&lt;</p>", `<td background="https://acme.example/a.png"></td>`,
		`<div style="background-image: url(https://acme.example/a.png)"></div>`, "<style>p{}</style>x", "<head><title>t</title></head>x", "&amp;", "<p>.</p>", "<html><head><title>t</title><body>x",
		"<!doctype html><html><head><style>a{}</style></head><body><!-- x --><p>Olá</p></body></html>", "<p>❤️</p>",
	} {
		if !htmlcheck.HasVisibleContent(body) {
			t.Errorf("%q shows something", body)
		}
	}
}
