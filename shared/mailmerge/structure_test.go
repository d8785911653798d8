package mailmerge_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/net/html"
	"pgregory.net/rapid"

	"email-gateway/shared/htmlcheck"
	"email-gateway/shared/mailmerge"
)

// harmless are values of the fields that the tests below use: url can begin an
// address, host can be part of a host name, x anywhere else.
var harmless = map[string]string{"url": "https://h/", "host": "h", "x": "h"}

// hostile are values that would do harm if they were not escaped. Texts begin
// with a letter like the harmless ones, because a tree builder treats white
// space specially: <table> </table> keeps it, <table>h</table> moves it out.
var hostile = rapid.Custom(func(t *rapid.T) map[string]string {
	scrap := rapid.OneOf(
		rapid.StringOfN(rapid.RuneFrom([]rune("aZ0 <>&\"'`=/\\;:#?%.,-!()[]{}\t\r\n\f\u00a0\u2028\ufeffç😀")), 0, 12, -1),
		rapid.SampledFrom([]string{
			`"><script>alert(1)</script>`, `' onload='x`, ` onclick=x `, "<!--", "-->", "]]>", "</title>", "</style>", "</pre>", "</noscript>",
			"javascript:alert(1)", "&quot;", "&#34;", "&lt;", "lt;", "amp;", "{{x}}", "{{{{", "../..", "//evil.example", "?a=b&c#d", "%2F", "\ufffd",
			"<table><tr>", "<plaintext>", "https://b, javascript:x", "<![CDATA[", "<svg>", "\x0b\x01\x7f",
		}),
	)
	text := strings.Join(rapid.SliceOfN(scrap, 0, 5).Draw(t, "value"), "")
	return map[string]string{
		"x":    "h" + text,
		"url":  rapid.SampledFrom([]string{"https://h/", "HTTP://h?", "mailto:h", "tel:1"}).Draw(t, "scheme") + text,
		"host": rapid.StringMatching(`[a-zA-Z0-9-]{1,8}(\.[a-z]{1,3})?`).Draw(t, "host"),
	}
})

// templates strings together pieces, among them some in which fields are refused.
var templates = rapid.Custom(func(t *rapid.T) string {
	pieces := rapid.SampledFrom([]string{
		"{{x}}", "{{ x }}", "text ", "\n", "\r", "é", " &amp;", " &nbsp;", "&", "<", ">", `\{{`, "<p>", "</p>", "<b>", "</b>", "<br/>", "<td>", "</td>",
		"<table>", "<tr>", "</table>", "<pre>", "</pre>", "<ul><li>", "<select><option>", "<svg>", "</svg>", "<svg><path d='M0'/></svg>", "<math>",
		`<a href="{{url}}">`, "</a>", `<a href='{{url}}/{{x}}?{{x}}'>`, `<a href="https://a/{{x}}/?b={{x}}&amp;c={{x}}#{{x}}">`, `<a href="https://{{host}}.a.b:80/{{x}}">`,
		`<a href="https://{{host}}">`, `<a href="mailto:{{x}}?subject={{x}}">`, `<a href="tel:{{x}}">`, `<img src="{{url}}" alt='{{x}}'>`,
		`<img srcset="{{url}} 1x, https://a/{{x}} 2x">`, `<p title="a {{x}} b" class='{{x}}'>`, `<td background="{{url}}" width={{x}}>`, "<p {{x}}>",
		"<title>{{x}}</title>", "<title>", "</title>", "<style>p{a:b}</style>", "<style>", "</style>", "<noscript>", "</noscript>", "<textarea>", "</textarea>",
		"<iframe>", "</iframe>", "<xmp>", "</xmp>", "<!--", "-->", "<!-- c -->", "<!--[if mso]>", "<![endif]-->", "<!--[if !mso]><!-->", "<!--<![endif]-->",
		"<![CDATA[", "]]>", "<!doctype html>", `<p title="`, `">`, `'>`, `<p title='`, "<a ", "href=", "=", "/", `"`, "'", "<plaintext>", "<template>", "</template>",
		"<head>", "<body>", `<meta name="description" content="{{x}}">`, `<o:p a="{{x}}">`,
	})
	return strings.Join(rapid.SliceOfN(pieces, 1, 14).Draw(t, "template"), "")
})

func TestParseHTML_StructureHolds(t *testing.T) {
	t.Parallel()
	accepted := 0
	rapid.Check(t, func(t *rapid.T) {
		template, err := mailmerge.ParseHTML(templates.Draw(t, "template"))
		if err != nil {
			return
		}
		accepted++
		holds(t, template, harmless, hostile.Draw(t, "values"))
	})
	if accepted == 0 {
		t.Error("every template was refused")
	}
}

// TestParseHTML_OrdinaryStructureHolds does so with documents that are all
// accepted, and looks for the values in the result.
func TestParseHTML_OrdinaryStructureHolds(t *testing.T) {
	t.Parallel()
	const document = `<!DOCTYPE html><html><head><meta charset="utf-8"><title>Oi {{x}}</title><style>p > a { color: red }</style></head>
<body><!-- a "comment --><!--[if mso]><table><tr><td><![endif]--><p class="{{x}}" title='{{x}}'>{{x}}, <b>{{x}}</b></p>
<pre>{{x}}</pre><noscript><img src="https://a/"></noscript><table><tr><td>&amp;{{x}}{{x}}</td></tr></table>
<a href="{{url}}">a</a> <a href="https://a/{{x}}?b={{x}}#{{x}}">b</a></body></html>`
	template, err := mailmerge.ParseHTML(document)
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		values := hostile.Draw(t, "values")
		body := holds(t, template, harmless, values)
		if strings.ContainsAny(values["url"], "\t\r\n\f\x0b\x01\x7f") {
			return // refused
		}
		var texts, classes, titles, hrefs []string
		root, err := html.Parse(strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		for node := range root.Descendants() {
			if node.Type == html.TextNode {
				texts = append(texts, node.Data)
			}
			for _, a := range node.Attr {
				switch a.Key {
				case "class":
					classes = append(classes, a.Val)
				case "title":
					titles = append(titles, a.Val)
				case "href":
					hrefs = append(hrefs, a.Val)
				}
			}
		}
		x, seen := values["x"], fmt.Sprintf("%q", texts)
		for _, want := range []string{"Oi " + x, x + ", ", x, "&" + x + x} {
			if !strings.Contains(seen, fmt.Sprintf("%q", want)) {
				t.Errorf("text %q is not among %s", want, seen)
			}
		}
		if len(classes) != 1 || classes[0] != x || len(titles) != 1 || titles[0] != x {
			t.Errorf("attributes %q %q, want %q", classes, titles, x)
		}
		if len(hrefs) != 2 || hrefs[0] != strings.Trim(values["url"], " ") {
			t.Errorf("addresses %q, want %q", hrefs, values["url"])
		}
	})
}

// holds renders a template with hostile and harmless values and compares what
// clients see. It returns the hostile document, or nothing when a value was
// refused.
func holds(t interface {
	Helper()
	Fatalf(format string, args ...any)
}, template *mailmerge.Template, harmless, values map[string]string,
) string {
	t.Helper()
	calm, err := render(template, harmless)
	if err != nil {
		t.Fatalf("harmless values: %v", err)
	}
	body, err := render(template, values)
	if err != nil {
		return ""
	}
	if got, want := tokens(body), tokens(calm); got != want {
		t.Fatalf("tokens changed:\n%s\n%s\nbody: %q", got, want, body)
	}
	for _, scripting := range []bool{true, false} {
		if got, want := tree(body, scripting), tree(calm, scripting); got != want {
			t.Fatalf("tree changed:\n%s\n%s\nbody: %q", got, want, body)
		}
	}
	if htmlcheck.Check(calm) == nil {
		if err := htmlcheck.Check(body); err != nil && !errors.Is(err, htmlcheck.ErrTooLarge) {
			t.Fatalf("htmlcheck.Check = %v for %q", err, body)
		}
	}
	return body
}

// tokens lists tags, names of attributes and comments.
func tokens(body string) string {
	var b strings.Builder
	z := html.NewTokenizer(strings.NewReader(body))
	for {
		switch kind := z.Next(); kind {
		case html.ErrorToken:
			return b.String()
		case html.TextToken:
			continue
		default:
			token := z.Token()
			fmt.Fprintf(&b, "%v ", kind)
			if kind == html.CommentToken || kind == html.DoctypeToken {
				fmt.Fprintf(&b, "%q\n", token.Data)
				continue
			}
			fmt.Fprintf(&b, "%s%s\n", token.Data, names(token.Attr))
		}
	}
}

// tree lists elements with their depth and names of attributes.
func tree(body string, scripting bool) string {
	root, err := html.ParseWithOptions(strings.NewReader(body), html.ParseOptionEnableScripting(scripting))
	if err != nil {
		return err.Error()
	}
	var b strings.Builder
	for node := range root.Descendants() {
		if node.Type != html.ElementNode {
			continue
		}
		depth := 0
		for range node.Ancestors() {
			depth++
		}
		fmt.Fprintf(&b, "%d %s%s\n", depth, node.Data, names(node.Attr))
	}
	return b.String()
}

func names(attributes []html.Attribute) string {
	var b strings.Builder
	for _, a := range attributes {
		b.WriteString(" " + a.Key)
	}
	return b.String()
}
