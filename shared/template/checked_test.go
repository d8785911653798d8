package template_test

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"email-gateway/shared/htmlcheck"
	"email-gateway/shared/mailmerge"
	"email-gateway/shared/template"
)

// pieces are parts of templates. Put together they hide script from a check of the source, or seem to contain some.
var pieces = []string{
	`<p>`, `</p>`, `{{v}}`, `{{v|a <b> c}}`, `{{v|<style>}}`, `{{v|</style>}}`, `{{! }}`, `{{! <!-- }}`, `{{! --> }}`, `{{! <img src="cid:x" onerror="a()"> }}`,
	"{{! a\n}}\n", `{{#s}}`, `{{/s}}`, `{{#s}}<p>x</p>{{/s}}`, `<p title="{{v}}{{#s}}a{{/s}}">x</p>`, `<a href="{{u}}">x</a>`, `<a href="https://x.example/{{v}}">x</a>`,
	`<script>`, `</script>`, `<scr`, `ipt>`, `alert(1)`, `<img src="x" on`, `error="a()">`, `<a href="search-`, `ms:query=x">x</a>`, `java`, `script:a()">x</a>`, `<a href="`,
	`<style>`, `p { color: red }`, `</style>`, `<svg>`, `</svg>`, `<noscript>`, `</noscript>`, `<title>`, `</title>`, `<!-- `, ` -->`, `\{{x}}`, "\n", ` `, `x`,
}

// The check of a template in its checked form accepts what every rendering passes, and refuses nothing that a
// rendering with all sections passes.
func TestCheckedOutline_VerdictOfRenderings(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	data := make([]template.Data, 0, 4)
	for _, raw := range []string{
		`{"v": "x", "u": "https://x.example/", "s": true}`, `{"v": "", "u": "https://x.example/", "s": false}`,
		`{"v": "<script>alert(1)</script>", "u": "https://x.example/", "s": true}`, `{"v": "\" onerror=\"a()", "u": "https://x.example/", "s": [1, 2]}`,
	} {
		read, err := template.ReadData([]byte(raw))
		if err != nil {
			t.Fatal(err)
		}
		data = append(data, read)
	}
	var accepted, refused int
	for range 6_000 {
		var b strings.Builder
		for range 1 + random.IntN(9) {
			b.WriteString(pieces[random.IntN(len(pieces))])
		}
		source := b.String()
		parsed, faults := template.Parse(template.Source{Subject: "s", HTML: source})
		if len(faults) > 0 {
			continue
		}
		verdict := htmlcheck.Check(mailmerge.CheckedOutline(source).HTML)
		if verdict == nil {
			accepted++
		} else {
			refused++
		}
		for i := range data {
			made, faults := parsed.Render("data", data[i])
			if len(faults) > 0 { // v stands in an address
				continue
			}
			err := htmlcheck.Check(made.HTML)
			if errors.Is(err, htmlcheck.ErrEmpty) || errors.Is(verdict, htmlcheck.ErrEmpty) {
				continue
			}
			if err != nil && verdict == nil || i == 0 && (err == nil) != (verdict == nil) {
				t.Fatalf("%q: %v, rendered %q: %v", source, verdict, made.HTML, err)
			}
		}
	}
	if accepted < 200 || refused < 200 {
		t.Errorf("%d accepted and %d refused templates are too few to say anything", accepted, refused)
	}
}
