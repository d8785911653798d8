package mailmerge_test

import (
	"fmt"
	"strings"
	"testing"

	"email-gateway/shared/htmlcheck"
	"email-gateway/shared/mailmerge"
)

// TestParseHTML_RolesAgree holds that an attribute in which htmlcheck looks for
// script takes no value that it would refuse, whatever element it is on.
func TestParseHTML_RolesAgree(t *testing.T) {
	t.Parallel()
	const attributes = `abbr about accept accept-charset action align alink allow alt althref altimg archive as async attributename attributionsrc attributetype
		axis background base begin behavior bgcolor border by calcmode cellpadding cellspacing charset cite class classid clear
		clip-path code codebase codetype color cols colspan content coords cursor data data-x datasrc datetime dir disabled
		download dynsrc enctype end face fill filter folder for form formaction formenctype formmethod frame from headers height
		href hreflang hspace http-equiv icon id imagesizes imagesrcset implementation inputmode integrity is itemprop keytype
		kind label lang language leftmargin link list longdesc loopsrc low lowsrc manifest marker marker-end marker-mid
		marker-start mask max media method min name nonce on onclick onfocus onload ping pluginspage pluginurl poster profile property rel rev role
		rows rules sandbox scheme scope scrolling shape size sizes span src srcdoc srclang srcset start step stroke style
		summary tabindex target text title to topmargin type url usemap valign value values valuetype version vlink vspace
		width wrap xlink:href xml:base xmlns xmlns:v v:src x:style x:onclick`
	attacks := []string{"javascript:alert(1)", "expression(alert(1))", "url(javascript:x)", "data:text/html,x", "<p onclick=x>", "onclick", "0;url=javascript:x", `\\host\a`, "file://host/a"}
	refusedByCheck, accepted := 0, 0
	for _, tag := range []string{"a", "p", "img", "param", "object", "form", "svg", "animate", "meta", "body", "v:fill"} {
		for _, name := range strings.Fields(attributes) {
			template, err := mailmerge.ParseHTML(fmt.Sprintf(`<%s %s="{{x}}">`, tag, name))
			if err == nil {
				accepted++
			}
			for _, attack := range attacks {
				body := fmt.Sprintf(`<%s %s="%s">`, tag, name, attack)
				if htmlcheck.Check(body) == nil {
					continue
				}
				refusedByCheck++
				if err != nil {
					continue
				}
				if got, err := render(template, map[string]string{"x": attack}); err == nil {
					t.Errorf("rendered %s", got)
				}
			}
		}
	}
	if refusedByCheck < 300 || accepted < 300 {
		t.Errorf("htmlcheck refused %d attacks, mailmerge accepted %d attributes: the test covers too little", refusedByCheck, accepted)
	}
}

// TestParseHTML_Linear reads templates of the largest size made to be slow. A
// quadratic step would take minutes.
func TestParseHTML_Linear(t *testing.T) {
	t.Parallel()
	fill := func(before, piece, after string) string {
		return before + strings.Repeat(piece, (htmlcheck.MaxBytes-len(before)-len(after))/len(piece)) + after
	}
	for name, template := range map[string]string{
		"fields":              fill("", "{{a}}", ""),
		"distinct places":     fill("", `<a b="{{a}}" href="https://a/{{a}}">`, ""),
		"one attribute":       fill(`<a b="`, "{{a}}", `">`),
		"one address":         fill(`<a href="https://a/`, "{{a}}", `">`),
		"address references":  fill(`<a href="https://a/`, "&amp;{{a}}", `">`),
		"one list":            fill(`<a srcset="`, "{{a}},", `">`),
		"one host":            fill(`<a href="https://`, "{{a}}", `.b/">`),
		"attributes":          fill("<a ", "b ", ">{{a}}"),
		"distinct attributes": fill(`<a c="{{a}}" `, "b ", ">"),
		"backslashes":         fill("", `\`, "{{a}}"),
		"escapes":             fill("", `\{{`, "{{a}}"),
		"letters":             fill("&", "a", "{{a}}"),
		"raw text":            fill("", "<noscript><a></noscript>", "{{a}}"),
		"nested raw text":     fill("", "<noscript><iframe><xmp><noembed>", "{{a}}"),
		"open raw text":       fill("<xmp>", "<noscript><iframe>", "</xmp>{{a}}"),
		"comments":            fill("<!--[if", "<!--", "-->{{a}}"),
		"brackets":            fill("<!--", "[", "-->{{a}}"),
		"spaces":              fill("<a ", " ", `b="{{a}}">`),
		"unclosed":            fill("", "{{a", ""),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			parsed, err := mailmerge.ParseHTML(template)
			if err != nil {
				return
			}
			if _, err := render(parsed, map[string]string{"a": "https://b"}); err != nil {
				t.Log(err)
			}
		})
	}
}
