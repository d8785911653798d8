package htmlcheck_test

import (
	"slices"
	"strings"
	"testing"

	"email-gateway/shared/htmlcheck"
)

// all is "RULE at where in line n" of each violation.
func all(html string, limit int) []string {
	var violations []string
	for _, v := range htmlcheck.CheckAll(html, limit) {
		violations = append(violations, strings.TrimSuffix(v.Error(), ": "+v.Detail))
	}
	return violations
}

func TestCheckAll(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		html string
		want []string
	}{
		"fine": {"<p>Oi</p>", nil},
		"each of several": {"<p onclick=a()>\n<script>x</script>\n<a href='javascript:x' onmouseover=b()>a</a>\n<p onclick=c()>", []string{
			"EVENT_HANDLER at p/onclick in line 1", "SCRIPT_ELEMENT at script in line 2", "SCRIPT_URL at a/href in line 3", "EVENT_HANDLER at a/onmouseover in line 3",
			"EVENT_HANDLER at p/onclick in line 4",
		}},
		"twice in one line": {"<p onclick=a()><p onclick=b()>", []string{"EVENT_HANDLER at p/onclick in line 1", "EVENT_HANDLER at p/onclick in line 1"}},
		"once, although every parse finds it": {
			"<p onclick=a()><noscript><p onload=b()></noscript><svg><a href=javascript:c() /></svg>",
			[]string{"EVENT_HANDLER at p/onclick in line 1", "SCRIPT_URL at a/href in line 1", "EVENT_HANDLER at p/onload in line 1"},
		},
		"in a conditional comment": {"<p>\n<!--[if mso]>\n<p onclick=a()>\n<iframe><p onload=b()></iframe><![endif]-->", []string{
			"EVENT_HANDLER at conditional comment > p/onclick in line 3", "EVENT_HANDLER at conditional comment > p/onload in line 4",
		}},
		"in a srcdoc": {"\n<iframe srcdoc='<p onclick=a()><script>x</script>'></iframe>", []string{
			"EVENT_HANDLER at iframe/srcdoc > p/onclick in line 2", "SCRIPT_ELEMENT at iframe/srcdoc > script in line 2",
		}},
		"each rule of a style": {
			"<style>\na{width:expression(1)} b{width:expression(2)} c{background:url(javascript:x)}</style><p style='width:expression(1);background:url(file:///x)'>",
			[]string{"CSS_EXPRESSION at style in line 1", "SCRIPT_URL at style in line 1", "CSS_EXPRESSION at p/style in line 2", "LOCAL_URL at p/style in line 2"},
		},
		"in JSON-LD":                 {`<script type="application/ld+json">{"a": "<p onclick=a()>"}</script>`, []string{"EVENT_HANDLER at script > p/onclick in line 1"}},
		"a last tag without its end": {"<p onclick=a()>\n<p onload=b()", []string{"EVENT_HANDLER at p/onclick in line 1", "EVENT_HANDLER at p/onload in line 2"}},
		"the body as a whole":        {" ", []string{"HTML_EMPTY"}},
	} {
		if got := all(tt.html, 20); !slices.Equal(got, tt.want) {
			t.Errorf("%s:\n got %q\nwant %q", name, got, tt.want)
		}
	}
	if got := all(strings.Repeat("<p onclick=a()>\n", 1000), 20); len(got) != 20 || got[19] != "EVENT_HANDLER at p/onclick in line 20" {
		t.Errorf("a thousand violations are listed as %q", got)
	}
}

// CheckAll rejects the same bodies as Check, with the violation of Check first.
func TestCheckAll_AgreesWithCheck(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{"refused", "accepted"} {
		for name, body := range files(t, dir) {
			err, found := htmlcheck.Check(body), htmlcheck.CheckAll(body, 20)
			if (err == nil) != (len(found) == 0) || err != nil && rule(err) != found[0].Rule {
				t.Errorf("%s: Check = %v, CheckAll = %v", name, err, found)
			}
		}
	}
}
