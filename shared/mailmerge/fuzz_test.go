package mailmerge_test

import (
	"testing"

	"email-gateway/shared/mailmerge"
)

// FuzzHTML checks that no value changes the structure of a template that was
// accepted. Fields of any other name than those of harmless have x's value.
func FuzzHTML(f *testing.F) {
	for _, seed := range []struct{ template, value string }{
		{`<p class="{{x}}">Olá {{x}}</p><a href="{{url}}">{{x}}</a>`, `"><script>alert(1)</script>`},
		{`<a href="https://a/{{x}}?b={{x}}#{{x}}">`, `/../?c&d#e%2F`},
		{`<a href='{{url}}/{{x}}'>\{{x}}</a>`, "\n javascript:x"},
		{`<iframe><a title="</iframe><b class="{{x}}">`, "a onclick=b"},
		{`<noscript><iframe><a title="</iframe><i class="></noscript><b class="{{x}}">`, " onclick=b"},
		{`<svg><![CDATA[><a title="]]><a href={{x}}>">`, " onclick=b"},
		{`<!--[if mso]><a title="<![endif]--><b class="{{x}}">`, " onclick=b"},
		{`<img srcset="{{url}} 1x, https://{{host}}.a/{{x}} 2x">`, ", javascript:x"},
		{"<pre>{{x}}</pre><title>{{x}}</title>", "</title><b>"},
		{"&{{x}} &amp{{x}} &#{{x}} <{{x}}", "lt;"},
	} {
		f.Add(seed.template, seed.value)
	}
	f.Fuzz(func(t *testing.T, text, value string) {
		template, err := mailmerge.ParseHTML(text)
		if err != nil {
			return
		}
		calm, wild := map[string]string{}, map[string]string{}
		for _, name := range template.Fields() {
			calm[name], wild[name] = "h", "h"+value
			if known, ok := harmless[name]; ok {
				calm[name] = known
			}
			if name == "url" {
				wild[name] = harmless[name] + value
			}
		}
		if _, err := render(template, calm); err != nil {
			return // a field of another name is at the beginning of an address
		}
		holds(t, template, calm, wild)
	})
}

// FuzzText checks that a value is rendered unchanged.
func FuzzText(f *testing.F) {
	f.Add(`a {{x}} \{{x}} \\{{razão social}}`, "{{x}}")
	f.Add("{{x", "b")
	f.Add("{{ x\n}}{{{", "b")
	f.Fuzz(func(t *testing.T, text, value string) {
		template, err := mailmerge.ParseText(text)
		if err != nil {
			return
		}
		b, missing := template.Bind(func(string) (int, bool) { return 0, true })
		if len(missing) > 0 {
			t.Fatalf("missing %q", missing)
		}
		empty, err := b.AppendTo(nil, []string{""})
		if err != nil {
			t.Fatal(err)
		}
		got, err := b.AppendTo(nil, []string{value})
		if err != nil {
			return
		}
		if len(value) > 0 && (len(got)-len(empty))%len(value) != 0 || len(got) != b.Size([]string{value}) {
			t.Errorf("%d bytes, %d without the value, Size %d", len(got), len(empty), b.Size([]string{value}))
		}
	})
}
