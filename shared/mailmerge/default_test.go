package mailmerge_test

import (
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"email-gateway/shared/mailmerge"
)

func TestDefaults(t *testing.T) {
	t.Parallel()
	template, err := mailmerge.ParseHTML(`<p>{{nome|cliente}}, {{ nome | <b>Sr. & Sra.</b> }}, {{nome|}} {{nome}} {{cidade|São Luís}} {{email|x}} \{{a|b}} \\{{x|1|2}}</p><a href="{{link|https://acme.example/?a=1}}">x</a>`)
	if err != nil {
		t.Fatal(err)
	}
	want := []mailmerge.Field{
		{Name: "nome", Default: "cliente", HasDefault: true},
		{Name: "nome", Default: "<b>Sr. & Sra.</b>", HasDefault: true},
		{Name: "nome", HasDefault: true},
		{Name: "nome"},
		{Name: "cidade", Default: "São Luís", HasDefault: true},
		{Name: "email"},
		{Name: "x", Default: "1|2", HasDefault: true},
		{Name: "link", Default: "https://acme.example/?a=1", HasDefault: true},
	}
	if diff := cmp.Diff(want, template.Slots()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"nome", "cidade", "email", "x", "link"}, template.Fields()); diff != "" || !template.Has("nome") || template.Has("y") {
		t.Error(diff)
	}
	// The caller provides each field's value, or its default.
	var values []string
	bound, missing := template.Bind(func(key string) (int, bool) {
		_, text, _ := strings.Cut(key, "|")
		values = append(values, text)
		return len(values) - 1, true
	})
	if len(missing) > 0 {
		t.Fatal(missing)
	}
	got, err := bound.AppendTo(nil, values)
	const rendered = `<p>cliente, &lt;b&gt;Sr. &amp; Sra.&lt;/b&gt;,   São Luís  {{a|b}} \1|2</p><a href="https://acme.example/?a=1">x</a>`
	if string(got) != rendered || err != nil {
		t.Errorf("%s, %v", got, err)
	}
	// Without defaults it is a template for programs that know none.
	n := 0
	plain := template.Plain(func(f mailmerge.Field) string {
		if n++; !f.HasDefault {
			t.Errorf("%+v has no default", f)
		}
		return "d" + strconv.Itoa(n)
	})
	const stored = `<p>{{d1}}, {{d2}}, {{d3}} {{nome}} {{d4}} {{email}} \{{a|b}} \\{{d5}}</p><a href="{{d6}}">x</a>`
	if plain != stored {
		t.Errorf("%s", plain)
	}
	if again, err := mailmerge.ParseHTML(plain); err != nil || again.Plain(nil) != plain {
		t.Errorf("%v", err)
	}
}

// An editor writes the default of an HTML body with references; elsewhere they are text.
func TestDefaults_References(t *testing.T) {
	t.Parallel()
	const text = `{{nome|Sr. &amp; Sra. Jos&eacute; &lt;b&gt;}}`
	for name, tt := range map[string]struct {
		parse func(string) (*mailmerge.Template, error)
		want  string
	}{
		"html":    {mailmerge.ParseHTML, "Sr. & Sra. José <b>"},
		"text":    {mailmerge.ParseText, "Sr. &amp; Sra. Jos&eacute; &lt;b&gt;"},
		"subject": {mailmerge.ParseSubject, "Sr. &amp; Sra. Jos&eacute; &lt;b&gt;"},
	} {
		template, err := tt.parse(text)
		if err != nil || template.Slots()[0].Default != tt.want {
			t.Errorf("%s: %+v, %v", name, template, err)
		}
	}
}

func TestDefaults_Faults(t *testing.T) {
	t.Parallel()
	for text, code := range map[string]string{
		`{{nome|a {{b}} c}}`: mailmerge.CodeDefault, `{{nome|{x}}}`: mailmerge.CodeDefault, `{{nome|a}}}`: mailmerge.CodeDefault, `{{nome|}}}`: mailmerge.CodeDefault,
		`{{nome || cliente}}`: mailmerge.CodeDefault, `{{nome||}}`: mailmerge.CodeDefault, `{{nome|a||b}}`: "", `{{nome|D'Ávila}}`: "", `{{nome|&#123;&#123;x}}`: mailmerge.CodeDefault,
		`{{nome|"cliente"}}`: mailmerge.CodeDefault, `{{nome|'cliente'}}`: mailmerge.CodeDefault, `<p title="{{nome|&quot;x&quot;}}">x</p>`: mailmerge.CodeDefault, `{{nome|"}}`: "",
		"{{nome|a\nb}}": mailmerge.CodeDefault, `{{nome|` + strings.Repeat("a", 201) + `}}`: mailmerge.CodeDefault,
		`{{nome | default: "x"}}`: mailmerge.CodeDefault, `{{|x}}`: mailmerge.CodeEmpty, `{{nome|x`: mailmerge.CodeUnclosed, `{{no;me|x}}`: mailmerge.CodeName,
		`<a href="{{link|javascript:alert(1)}}">x</a>`: mailmerge.CodeDefault, `<a href="{{link|}}">x</a>`: "", `<a href="https://{{shop|u m}}.example.com/">x</a>`: mailmerge.CodeDefault,
		`<script>{{a|b}}</script>`: mailmerge.CodeInScript, `<a href={{a|b}}>x</a>`: mailmerge.CodeUnquoted, `<p title="{{a|b"c}}">x</p>`: "",
	} {
		_, err := mailmerge.ParseHTML(text)
		var fault *mailmerge.Fault
		if errors.As(err, &fault) != (code != "") || fault != nil && fault.Code != code {
			t.Errorf("%s: %v, want %q", text, err, code)
		}
	}
}
