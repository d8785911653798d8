package mailmerge_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"email-gateway/shared/htmlcheck"
	"email-gateway/shared/mailmerge"
)

// render binds every field to the value of its name.
func render(t *mailmerge.Template, values map[string]string) (string, error) {
	var row []string
	b, missing := t.Bind(func(name string) (int, bool) {
		value, ok := values[name]
		row = append(row, value)
		return len(row) - 1, ok
	})
	if b == nil {
		return "", errors.New("missing: " + strings.Join(missing, ", "))
	}
	out, err := b.AppendTo(nil, row)
	return string(out), err
}

func TestParseHTML_Rendered(t *testing.T) {
	t.Parallel()
	const hostile = `<b onclick="x">&amp;'` + "`"
	const inert = "&lt;b onclick=&#34;x&#34;&gt;&amp;amp;&#39;&#96;"
	for _, tt := range []struct{ name, template, value, want string }{
		{"text", "<p>Olá {{x}}!</p>", hostile, "<p>Olá " + inert + "!</p>"},
		{"spaces around", "<p>{{\t x \n}}</p>", "1", "<p>1</p>"},
		{"title", "<title>{{x}}</title>", hostile, "<title>" + inert + "</title>"},
		{"double quotes", `<img alt="{{x}}">`, hostile, `<img alt="` + inert + `">`},
		{"single quotes", `<img alt = '{{x}}'/>`, hostile, `<img alt = '` + inert + `'/>`},
		{"line breaks", "<p>\r{{x}}</p>", "\na\r\n", "<p>\r&#10;a&#13;&#10;</p>"},
		{"preformed", "<pre>{{x}}</pre>", "\na", "<pre>\n&#10;a</pre>"},
		{"never twice", "{{x}}", "{{x}} {{y}}", "{{x}} {{y}}"},
		{"escaped braces", `\{{x}} {{x}} \{{`, "1", "{{x}} 1 {{"},
		{"backslash before a field", `a\\{{x}} \\\{{x}} b\c\`, "1", `a\1 \{{x}} b\c\`},
		{"closing braces alone", "<style>@media a{b{c:d}}</style>{{x}}}", "1", "<style>@media a{b{c:d}}</style>1}"},
		{"behind a finished reference", "&amp;{{x}}; &nbsp;{{x}}", "lt;", "&amp;lt;; &nbsp;lt;"},
		{"uppercase", `<IMG ALT="{{x}}">`, `"`, `<IMG ALT="&#34;">`},
		{"beside a plain comment", `<!-- <a title=" -->{{x}}`, "1", `<!-- <a title=" -->1`},
		{"beside a conditional comment", `<!--[if mso]><table><tr><td><![endif]-->{{x}}<!--[if !mso]><!-->`, "1", `<!--[if mso]><table><tr><td><![endif]-->1<!--[if !mso]><!-->`},
		{"behind noscript", `<noscript><img src="a"></noscript>{{x}}`, "1", `<noscript><img src="a"></noscript>1`},
		{"behind an old style sheet", "<style><!-- a>b{} --></style>{{x}}", "1", "<style><!-- a>b{} --></style>1"},
		{"meta description", `<meta name="description" content="{{x}}">`, `"`, `<meta name="description" content="&#34;">`},

		{"address alone", `<a href="{{x}}">`, "https://gw.example/u/AbC_-?a=1&b=2", `<a href="https://gw.example/u/AbC_-?a=1&amp;b=2">`},
		{"address indented", "<a href=\"\n {{x}}\">", " HTTP://a \n", "<a href=\"\n HTTP://a\">"},
		{"address and more", `<a href="{{x}}/p/{{x}}?q={{x}}">`, "mailto:a", `<a href="mailto:a/p/mailto%3Aa?q=mailto%3Aa">`},
		{"path", `<a href="https://a/{{x}}/b">`, "a/../b?c#d%2F", `<a href="https://a/a%2F..%2Fb%3Fc%23d%252F/b">`},
		{"query", `<a href="https://a?x={{x}}&y=1">`, "a&y=2 ç+", `<a href="https://a?x=a%26y%3D2%20%C3%A7%2B&y=1">`},
		{"fragment", `<a href='https://a#{{x}}'>`, "a'\"b", `<a href='https://a#a%27%22b'>`},
		{"own fragment", `<img usemap="#{{x}}">`, "a b", `<img usemap="#a%20b">`},
		{"host", `<a href="https://{{x}}/">`, "a-1.example", `<a href="https://a-1.example/">`},
		{"host with port", `<a href="https://{{x}}:8080/">`, "a", `<a href="https://a:8080/">`},
		{"subdomain", `<a href="https://{{x}}.example.com">`, "a.b", `<a href="https://a.b.example.com">`},
		{"mailto", `<a href="mailto:{{x}}?subject={{x}}">`, "a+b@c.example", `<a href="mailto:a%2Bb@c.example?subject=a%2Bb%40c.example">`},
		{"tel", `<a href="tel:{{x}}">`, "+55 (11) 9", `<a href="tel:+55%20(11)%209">`},
		{"scheme in references", `<a href="&#104;ttps&colon;//a/{{x}}">`, "/", `<a href="&#104;ttps&colon;//a/%2F">`},
		{"scheme broken up", "<a href=\"ht\ntps://a/{{x}}\">", "/", "<a href=\"ht\ntps://a/%2F\">"},
		{"backslash for slash", `<a href="https://a\\{{x}}">`, "/", `<a href="https://a\%2F">`},
		{"list", `<img srcset="{{x}} 1x, https://a/{{x}} 2x">`, "https://a,b c;d&", `<img srcset="https://a%2Cb%20c%3Bd&amp; 1x, https://a/https%3A%2F%2Fa%2Cb%20c%3Bd%26 2x">`},
		{"host in a list", `<img srcset="https://a-{{x}}.b 1x, https://{{x}} 2x">`, "c", `<img srcset="https://a-c.b 1x, https://c 2x">`},
		{"namespace", `<image xlink:href="{{x}}">`, "https://a", `<image xlink:href="https://a">`},
		{"data attribute", `<a data-href="{{x}}">`, "javascript:", `<a data-href="javascript:">`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			template, err := mailmerge.ParseHTML(tt.template)
			if err != nil {
				t.Fatal(err)
			}
			got, err := render(template, map[string]string{"x": tt.value})
			if err != nil {
				t.Fatal(err)
			}
			if got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			for _, body := range []string{tt.template, got} {
				if err := htmlcheck.Check(body); err != nil {
					t.Errorf("htmlcheck.Check = %v for %s", err, body)
				}
			}
		})
	}
}

func TestParseHTML_ValueFaults(t *testing.T) {
	t.Parallel()
	addresses := []string{
		"", " ", "example.com", "/a", "//a", "javascript:alert(1)", " javascript:alert(1)", "\x01javascript:x", "java\nscript:x",
		"java\tscript:x", "JavaScript:x", "javascript&#58;x", "&#106;avascript:x", "data:text/html,x", "vbscript:x", "file:///a", "cid:a",
		"https:", "https://", "https:/a", "https:///a", `https://\a`, "https://?", "https:javascript:x", "ht\ntps://a", "https://a\tb",
		"\ufeffhttps://a", "\u00a0https://a", "mailto:", "tel:", "HTTPS", "x https://a",
	}
	hosts := []string{"", "a/b", "a?b", "a#b", `a\b`, "a@b", "a:1", "a..b", ".a", "a.", "a b", "ç", "%61", "a_b", "[::1]"}
	for template, values := range map[string][]string{
		`<a href="{{x}}">`:                       addresses,
		`<img src='{{x}}/{{x}}'>`:                addresses,
		`<form action=" {{x}}">`:                 addresses,
		`<img srcset="https://a 1x,{{x}} 2x">`:   addresses,
		`<a href="https://{{x}}.example.com/">`:  hosts,
		`<a href="https://{{x}}">`:               hosts,
		`<a href="https://a/{{x}}">`:             {".", "..", "...", "a\x00", "\xff"},
		`<p>{{x}}</p>`:                           {"\x00", "\xff", "a\xc3"},
		`<p title="{{x}}">`:                      {"\x00", "\xff"},
		`<a href="https://a/b?c={{x}}#d">{{x}}!`: {"a\x00"},
	} {
		parsed, err := mailmerge.ParseHTML(template)
		if err != nil {
			t.Errorf("%s: %v", template, err)
			continue
		}
		for _, value := range values {
			got, err := render(parsed, map[string]string{"x": value})
			var fault *mailmerge.ValueFault
			if !errors.As(err, &fault) || fault.Field != "x" || got != "" {
				t.Errorf("%s with %q: %q, %v", template, value, got, err)
			} else if strings.Contains(err.Error(), "alert") {
				t.Errorf("the error quotes the value: %v", err)
			}
		}
	}
}

func TestParseText(t *testing.T) {
	t.Parallel()
	template, err := mailmerge.ParseText("Olá {{razão social}},\n<{{ e-mail/1 }}> &{{x.y_z}} \\{{x}}\n{{x.y_z}}")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"razão social", "e-mail/1", "x.y_z"}, template.Fields()); diff != "" {
		t.Error(diff)
	}
	got, err := render(template, map[string]string{"razão social": "A & B\r\n", "e-mail/1": "<b>", "x.y_z": "{{x}}"})
	if want := "Olá A & B\r\n,\n<<b>> &{{x}} {{x}}\n{{x}}"; err != nil || got != want {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
	for _, value := range []string{"\x00", "\xff"} {
		var fault *mailmerge.ValueFault
		_, err := render(template, map[string]string{"razão social": "", "e-mail/1": value, "x.y_z": ""})
		if !errors.As(err, &fault) || fault.Code != mailmerge.CodeValueNotText || fault.Field != "e-mail/1" {
			t.Errorf("%q: %v", value, err)
		}
	}
}

func TestParseSubject(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, template, value, want, code string }{
		{"as it is", "Olá {{x}} & <b>", `"Maria" <&>`, `Olá "Maria" <&> & <b>`, ""},
		{"no field", "Olá", "", "Olá", ""},
		{"longest", "{{x}}é", strings.Repeat("ç", 149), strings.Repeat("ç", 149) + "é", ""},
		{"too long", "{{x}}é", strings.Repeat("ç", 150), "", mailmerge.CodeSubjectLength},
		{"empty", "{{x}}", "", "", mailmerge.CodeSubjectLength},
		{"line feed", "a {{x}}", "b\nBcc: c@example.com", "", mailmerge.CodeValueControl},
		{"carriage return", "a {{x}}", "b\r", "", mailmerge.CodeValueControl},
		{"next line", "a {{x}}", "b\u0085", "", mailmerge.CodeValueControl},
		{"line separator", "a {{x}}", "b\u2028", "", mailmerge.CodeValueControl},
		{"tab", "a {{x}}", "\t", "", mailmerge.CodeValueControl},
		{"not UTF-8", "a {{x}}", "\xff", "", mailmerge.CodeValueNotText},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			template, err := mailmerge.ParseSubject(tt.template)
			if err != nil {
				t.Fatal(err)
			}
			got, err := render(template, map[string]string{"x": tt.value})
			var fault *mailmerge.ValueFault
			if errors.As(err, &fault) != (tt.code != "") || fault != nil && fault.Code != tt.code || got != tt.want {
				t.Errorf("%q, %v, want %q, %s", got, err, tt.want, tt.code)
			}
		})
	}
	for template, code := range map[string]string{
		"":                            mailmerge.CodeSubjectLength,
		strings.Repeat("ç", 151):      mailmerge.CodeSubjectLength,
		"a\n{{x}}":                    mailmerge.CodeSubjectControl,
		"a\u2029":                     mailmerge.CodeSubjectControl,
		"{{x":                         mailmerge.CodeUnclosed,
		"\xff":                        mailmerge.CodeNotText,
		strings.Repeat("ç{{x}}", 151): mailmerge.CodeSubjectLength,
	} {
		_, err := mailmerge.ParseSubject(template)
		var fault *mailmerge.Fault
		if !errors.As(err, &fault) || fault.Code != code {
			t.Errorf("ParseSubject(%q) = %v, want %s", template, err, code)
		}
	}
}
