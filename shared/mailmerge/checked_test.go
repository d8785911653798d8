package mailmerge_test

import (
	"strings"
	"testing"

	"email-gateway/shared/mailmerge"
)

func TestChecked(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{
		`<img on{{! }}error="a()">`:                `<img onerror="a()">`,
		`{{a|<style>}}<b>{{a|</style>}}</b>`:       `x<b>x</b>`,
		"<p>{{! a\nb }}\n{{#s}}\n{{v}}{{/s}}</p>":  "<p>\nxxx</p>",
		`\{{a}} \\{{a}}`:                           `{{a}} \x`,
		`<p>{{not closed</p>`:                      `<p>{{not closed</p>`,
		`{{! old: <img src="cid:logo"> }}<p>a</p>`: `<p>a</p>`,
	} {
		if got := mailmerge.CheckedOutline(source).HTML; got != want {
			t.Errorf("%q: %q, want %q", source, got, want)
		}
	}
	if got := mailmerge.CheckedHTML(`<p>{{a|<style>}}{{a}}</p>`).HTML; got != `<p>xx</p>` {
		t.Errorf("%q", got)
	}
}

// A line of the checked form is shown as the one of the source in which it begins.
func TestChecked_Line(t *testing.T) {
	t.Parallel()
	source := "{{! one\ntwo }}\n<p>three</p>\n{{#s}}\n<p>five</p>\n  {{/s}}\n<p>{{v}}</p>\n<p>eight</p>"
	c := mailmerge.CheckedOutline(source)
	lines := strings.Split(source, "\n")
	for i, line := range strings.Split(c.HTML, "\n") {
		line = strings.TrimLeft(line, "x")
		if n := c.Line(i + 1); line != "" && n != 7 && lines[n-1] != line {
			t.Errorf("line %d, %q, is line %d, %q", i+1, line, n, lines[n-1])
		}
	}
	if n := c.Line(5); n != 8 {
		t.Errorf("the last line is line %d", n)
	}
	if n := (mailmerge.Checked{HTML: "a\nb"}).Line(2); n != 2 {
		t.Errorf("line %d", n)
	}
}
