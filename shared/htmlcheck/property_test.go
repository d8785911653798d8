package htmlcheck_test

import (
	"fmt"
	"html"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"email-gateway/shared/htmlcheck"
)

// texts are what people write, among it words that only look dangerous.
var texts = rapid.OneOf(
	rapid.StringOfN(rapid.RuneFrom([]rune("aeio uçãé.,;:<>&\"'/=()-\n")), 0, 40, -1),
	rapid.SampledFrom([]string{
		"Olá, Maria", "<script>alert(1)</script>", "javascript:alert(1)", `<a onclick="x">`, "onload = now",
		"expression(1)", "url(javascript:x)", "<!--[if mso]><script>", "data:text/html,x", "{{nome}}",
	}),
)

var attributes = rapid.Custom(func(t *rapid.T) string {
	text := html.EscapeString(texts.Draw(t, "text"))
	return rapid.SampledFrom([]string{
		`class="a b"`, `width=600`, `WIDTH="100%"`, `style="color:#111; background:url(https://example.com/a.png)"`,
		`style='font-family:"Open Sans",Arial'`, `data-onclick="x()"`, `align=center`, `hidden`, `on="t"`,
		`href="https://example.com/?a=1&b=javascript:2"`, `src="data:image/png;base64,AAAA"`, `background="a.png"`,
		`srcset="a.png 1x, b.png 2x"`, `title="` + text + `"`, `alt='` + text + `'`, `value="` + text + `"`,
	}).Draw(t, "attribute")
})

// fragments are benign markup, nested up to a few levels, in the habits of
// hand-written and generated email.
func fragments(depth int) *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		kinds := 3
		if depth > 0 {
			kinds = 7
		}
		inside := func() string {
			return strings.Join(rapid.SliceOfN(fragments(depth-1), 0, 4).Draw(t, "children"), "\n")
		}
		attrs := strings.Join(rapid.SliceOfN(attributes, 0, 3).Draw(t, "attributes"), " ")
		switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
		case 0:
			return html.EscapeString(texts.Draw(t, "text"))
		case 1:
			return "<img " + attrs + "><br/>"
		case 2:
			return "<!-- " + strings.NewReplacer("--", "", "[", "").Replace(texts.Draw(t, "comment")) + " -->"
		case 3:
			return "<!--[if mso]><table " + attrs + "><tr><td><![endif]-->" + inside() + "<!--[if mso]></td></tr></table><![endif]-->"
		case 4:
			return "<table " + attrs + "><tr><td " + attrs + ">" + inside() + "</td></tr></table>"
		case 5:
			return "<noscript><p " + attrs + ">" + inside() + "</p></noscript>"
		default:
			tag := rapid.SampledFrom([]string{"div", "p", "a", "b", "center", "ul", "li", "h1", "FONT", "section", "o:p"}).Draw(t, "tag")
			return fmt.Sprintf("<%s %s>%s</%s>", tag, attrs, inside(), tag)
		}
	})
}

// TestBenignDocuments sends random benign documents through both paths.
func TestBenignDocuments(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		body := "<!DOCTYPE html><html><head><title>" + html.EscapeString(texts.Draw(t, "title")) +
			"</title><style>td { color: red }</style></head><body>" +
			strings.Join(rapid.SliceOfN(fragments(4), 1, 8).Draw(t, "body"), "") + "</body></html>"
		if err := htmlcheck.Check(body); err != nil {
			t.Fatalf("Check = %v for:\n%s", err, body)
		}
		if err := htmlcheck.CheckThoroughly(body); err != nil {
			t.Fatalf("CheckThoroughly = %v for:\n%s", err, body)
		}
	})
}

// TestInsertedScript inserts one piece of script at a random place of such a document,
// where it must be found.
func TestInsertedScript(t *testing.T) {
	t.Parallel()
	inserted := rapid.SampledFrom([]string{
		"<script>x</script>", "<SCRIPT SRC=//x>", "<img src=x onerror=x>", "<a href=javascript:x>", "<a href='\tJava\nScript:x'>",
		"<p style='width:expression(x)'>", "<td onclick=x>", "<svg onload=x>", "<noscript><b onclick=x></noscript>",
		"<!--[if mso]><b onclick=x></b><![endif]-->", "<iframe srcdoc='<b onclick=x>'></iframe>", "<style>p{-moz-binding:x}</style>",
	})
	rapid.Check(t, func(t *rapid.T) {
		before, after := fragments(3).Draw(t, "before"), fragments(3).Draw(t, "after")
		body := before + inserted.Draw(t, "script") + after
		if htmlcheck.Check(body) == nil {
			t.Fatalf("Check = nil for:\n%s", body)
		}
	})
}

// TestShortcuts compares the results with and without shortcuts on scraps of
// markup strung together, where parsers are most likely to lose their way.
func TestShortcuts(t *testing.T) {
	t.Parallel()
	scraps := rapid.SampledFrom([]string{
		"<", ">", "/", "=", "'", "\"", " ", "\n", "\r\n", "!", "-", "--", "-->", "<!--", "<!-->", "--!>", "<!", "<?", "[if", "<![endif]", "]]>",
		"<![CDATA[", "&", "&amp;", "&#106;", "&quot;", "a", "A", "on", "x", ";", ":", "\\", "/*", "*/", "(", ")", "{", "}",
		"<a ", "<p>", "</p>", "<b>", "</b>", "<table>", "<tr>", "<td>", "</table>", "<svg>", "</svg>", "<math>", "<template>", "</template>",
		"<style>", "</style>", "<style", "<title>", "</title>", "<noscript>", "</noscript>", "<xmp>", "</xmp>", "<iframe>", "<textarea>",
		"</textarea>", "<select>", "<frameset>", "<body ", "<html ", "<meta http-equiv=refresh content=", "<iframe srcdoc=", "<o:p>", "<br/>",
		"href=", "src='", "style=\"", "srcset=", "title=\"", "onclick", "onclick=", "script", "<script>", "javascript:", "data:", "image/png",
		"http://", "url(", "behavior:", "expression", "@import", "-moz-binding", "values=", "\uFFFD", "ｅ",
	})
	rapid.Check(t, func(t *rapid.T) {
		body := strings.Join(rapid.SliceOfN(scraps, 1, 30).Draw(t, "scraps"), "")
		got, want := htmlcheck.Check(body), htmlcheck.CheckThoroughly(body)
		if rule(got) != rule(want) {
			t.Fatalf("Check = %v, CheckThoroughly = %v for:\n%q", got, want, body)
		}
	})
}

// TestEveryHandler tries handlers of browsers old and new, each in the places
// where parsers differ.
func TestEveryHandler(t *testing.T) {
	t.Parallel()
	const handlers = `abort activate afterprint animationend animationiteration animationstart auxclick beforecopy beforecut
		beforeinput beforematch beforepaste beforeprint beforetoggle beforeunload begin blur bounce cancel canplay
		canplaythrough change click close command contentvisibilityautostatechange contextmenu copy cuechange cut dblclick
		drag dragend dragenter dragexit dragleave dragover dragstart drop durationchange end ended error finish focus
		focusin focusout formdata fullscreenchange gesturestart hashchange input invalid keydown keypress keyup load
		loadeddata loadedmetadata loadstart message mousedown mouseenter mouseleave mousemove mouseout mouseover mouseup
		mousewheel mozfullscreenchange pagehide pagereveal pageshow pageswap paste pause play playing pointercancel
		pointerdown pointerenter pointerleave pointermove pointerout pointerover pointerrawupdate pointerup popstate
		progress propertychange ratechange readystatechange repeat reset resize scroll scrollend scrollsnapchange search
		securitypolicyviolation seeked seeking select selectionchange selectstart show slotchange stalled start submit
		suspend timeupdate toggle touchcancel touchend touchmove touchstart transitioncancel transitionend transitionrun
		transitionstart unhandledrejection unload volumechange waiting webkitanimationend webkitmouseforcechanged
		webkittransitionend wheel`
	for _, name := range strings.Fields(handlers) {
		for _, place := range []string{
			`<p on%s="x">`, `<xss on%s=x tabindex=1>`, `<tr on%s='x'>`, `<noscript><p on%s=x></noscript>`,
			`<svg><style><a on%s=x></style></svg>`, `<!--[if mso]><p on%s=x><![endif]-->`, `<input type="text"/on%s=x`,
		} {
			body := fmt.Sprintf(place, name)
			for _, html := range []string{body, strings.ToUpper(body)} {
				if got := rule(htmlcheck.Check(html)); got != htmlcheck.RuleEventHandler {
					t.Errorf("Check(%q) breaks %q, want %s", html, got, htmlcheck.RuleEventHandler)
				}
			}
		}
	}
}
