package plaintext_test

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"email-gateway/shared/email"
	"email-gateway/shared/plaintext"
)

func TestFromHTML(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ html, want string }{
		"paragraphs":         {"<h1>Fatura &amp; conta</h1><p>Olá  <b>Ma</b>ria,<br>vence <i>hoje</i>.</p>\n<p>Até</p>", "Fatura & conta\n\nOlá Maria,\nvence hoje.\n\nAté\n"},
		"document":           {"<!doctype html><html><head><title>T</title><style>p{}</style></head><body><!-- c --><div>a</div><div>b</div><script>x</script></body></html>", "a\nb\n"},
		"entities":           {"<p>R$&nbsp;10 &lt;b&gt; 1 &#60; 2 &aacute;&#128512; a < b &unknown;</p>", "R$ 10 <b> 1 < 2 á😀 a < b &unknown;\n"},
		"link":               {`<p>Veja <a href="https://x.example/?a=1&amp;b=2">a <b>conta</b></a>.</p>`, "Veja a conta <https://x.example/?a=1&b=2>.\n"},
		"link to itself":     {`<a href="https://x.example/">x.example</a> <a href="mailto:a@x.example">a@x.example</a>`, "x.example a@x.example\n"},
		"link with a space":  {`<a href="https://x.example/Nota Fiscal.pdf">Baixar</a>`, "Baixar <https://x.example/Nota%20Fiscal.pdf>\n"},
		"link on lines":      {"<a href=\"https://x.example/?a=1&amp;\r\n\tb=2\">Pagar agora</a>", "Pagar agora <https://x.example/?a=1&b=2>\n"},
		"link's characters":  {"<a href='https://x.example/é?a=<b>\u00a0\u200b'>a</a>", "a <https://x.example/é?a=%3Cb%3E%C2%A0%E2%80%8B>\n"},
		"telephone":          {`<a href="tel:+55 11 4000-1234">+55 11 4000-1234</a>`, "+55 11 4000-1234\n"},
		"link of an image":   {`<a href="https://x.example/"><img src="i" alt="Logo"></a><a href="https://y.example/"><img src="i"></a>`, "Logo <https://x.example/><https://y.example/>\n"},
		"link without use":   {`<a href="#top">topo</a> <a href="/a">a</a> <a name="x">b</a> <a href="javascript:x()">c</a>`, "topo a b c\n"},
		"unclosed links":     {`<a href="https://x.example/">a<a href="https://y.example/">b`, "a <https://x.example/>b <https://y.example/>\n"},
		"list":               {"<p>a</p><ul><li>um<li><p>dois</p><ol><li>x</li><li>y</li></ol></li></ul>b", "a\n\n- um\n- dois\n\n  1. x\n  2. y\n\nb\n"},
		"table":              {"<table><tr><th>Item</th><th>Valor</th></tr><tr><td>Luz</td><td> 10 </td></tr></table>fim", "Item  Valor\nLuz  10\n\nfim\n"},
		"layout table":       {"<table><tr><td><table><tr><td></td><td><div>Olá</div></td></tr></table></td></tr></table>", "Olá\n"},
		"preheader":          {`<div style="display:none; max-height:0">Promo &zwnj;</div><span style="DISPLAY : none !important">x<span>y</span></span><p hidden>h</p><p>Olá</p>`, "Olá\n"},
		"invisible filler":   {"<p>a&#8203;b&shy;c</p><p>&#847;&#8203;</p><p>d</p>", "abc\n\nd\n"},
		"pre":                {"<pre>a  b\n    c\n</pre>d", "a  b\n    c\n\nd\n"},
		"pre, inline":        {"<pre>Total: <b>10</b>  R$ \n  <i>a</i> <u>b</u><br> c</pre><p> d</p>", "Total: 10  R$\n  a b\n c\n\nd\n"},
		"pre, wide spaces":   {"<pre>a " + strings.Repeat("\u2003", 67) + "<b>x</b></pre>", "a " + strings.Repeat("\u2003", 66) + "x\n"},
		"noscript":           {`<noscript><p>Veja <a href="https://x.example/">aqui</a></p></noscript><iframe><p>x</p></iframe>b`, "Veja aqui <https://x.example/>\n\nb\n"},
		"button":             {`<!--[if mso]><v:roundrect href="https://x.example/c"><center>Confirmar</center></v:roundrect><![endif]--><a href="https://x.example/c" style="display:inline-block;mso-hide:all;">Confirmar</a>`, "Confirmar <https://x.example/c>\n"},
		"conditional":        {"<!--[if mso]><p>mso</p><![endif]--><![if !mso]><p>a</p><![endif]>", "a\n"},
		"nothing":            {"<p>&nbsp;</p><img src=x><!-- a -->", ""},
		"empty":              {"", ""},
		"rule":               {"a<hr>b", "a\n\n---\n\nb\n"},
		"hidden, not closed": {"a<div hidden>b", "a\n"},

		"hidden paragraph without an end tag":  {`<p style="display:none">Preheader<p>Olá Ana<p>Seu boleto vence amanhã`, "Olá Ana\n\nSeu boleto vence amanhã\n"},
		"hidden paragraph in an element":       {`<div><p hidden>x<b>y</b></div>z`, "z\n"},
		"hidden row without an end tag":        {`<div>Olá</div><table><tr hidden><td>x<table><tr><td>y</table>z<tr><td>Total<td>10</table><p>Fim</p>`, "Olá\n\nTotal  10\n\nFim\n"},
		"hidden cell without an end tag":       {`<table><tr><td hidden>x<td>a<tr><td>b</table>`, "a\nb\n"},
		"hidden item without an end tag":       {`<ul><li hidden>a<ul><li>b<li>c</ul>d<li>e</ul><p>Fim</p>`, "- e\n\nFim\n"},
		"last item is hidden, without end tag": {`<ul><li>a<li hidden>b</ul><p>Fim</p>`, "- a\n\nFim\n"},
		"hidden, with end tags":                {`<ul><li hidden>a<ul><li>b</li></ul></li><li>c</li></ul>`, "- c\n"},
		"hidden section":                       {`<div hidden><p>a<div>b</div><ul><li>c</ul></div>d`, "d\n"},
	} {
		if got := plaintext.FromHTML(test.html); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// The time of large html is that of ordinary html of the same length, whatever it consists of.
func TestFromHTML_LinearTime(t *testing.T) {
	t.Parallel()
	fill := func(part string) string { return strings.Repeat(part, email.MaxHTML/4/len(part)) }
	took := func(html string, limit time.Duration) (d time.Duration) {
		for range 3 { // another process may have had the processor
			start := time.Now()
			plaintext.FromHTML(html)
			if d = time.Since(start); d <= limit {
				break
			}
		}
		return d
	}
	ordinary := took(fill(`<p>Olá, <a href="https://x.example/">conta</a> &amp; mais</p>`), time.Hour)
	limit := 20*ordinary + time.Second
	for _, part := range []string{
		"<div>", "<", "&", "<a href=\"https://x.example/\">", "<a href=\"https://x.example/\">a", "<ul><li>", "<ul><li>x", "<td>x", "<pre>\n", "<pre> <b>", "<noscript>", "<div hidden>", "<!--", "<script>", "<b x ",
		"&#1", "\n", " ", "\x00", "</a>", "<br>", "<p style=\"a:b\">", "<p style=\";;;;;;;;;;;;;;\">", "<title>", "<textarea>", "<svg><style>", "\xff",
	} {
		if d := took(fill(part), limit); d > limit {
			t.Errorf("%q takes %v, ordinary html %v", part, d, ordinary)
		}
	}
}

func TestFromHTML_LongerThanATextPart(t *testing.T) {
	t.Parallel()
	if got := plaintext.FromHTML(strings.Repeat("<ul>", 10) + strings.Repeat("<li>x", email.MaxHTML/6)); got != "" {
		t.Errorf("%d bytes", len(got))
	}
}

func FuzzFromHTML(f *testing.F) {
	for _, seed := range []string{"<p>a<br>b</p>", "<a href='https://x'>y</a>", "<ol><li>a</ol>", "<pre>\n a</pre>", "<div hidden>x</div>", "<![CDATA[x]]>"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, html string) {
		text := plaintext.FromHTML(html)
		if len(text) > email.MaxHTML {
			t.Errorf("%d bytes", len(text))
		}
		if text != "" && email.IsBlank(text) {
			t.Errorf("the text %q is blank", text)
		}
		if utf8.ValidString(html) && (!utf8.ValidString(text) || strings.ContainsRune(text, 0)) {
			t.Errorf("%q is not valid text", text)
		}
	})
}
