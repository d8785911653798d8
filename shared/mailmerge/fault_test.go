package mailmerge_test

import (
	"errors"
	"strings"
	"testing"

	"email-gateway/shared/mailmerge"
)

func TestParse_FieldFaults(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		template, code string
		line, column   int
	}{
		{"a {{", mailmerge.CodeUnclosed, 1, 3},
		{"a\r\nção {{x", mailmerge.CodeUnclosed, 2, 5},
		{"{{x} {{y}}", mailmerge.CodeUnclosed, 1, 1},
		{"{{x}}\n\n \\{{ {{y }", mailmerge.CodeUnclosed, 3, 6},
		{"{{x <b>{{y}}", mailmerge.CodeUnclosed, 1, 1},
		{"{{}}", mailmerge.CodeEmpty, 1, 1},
		{"{{  }}", mailmerge.CodeEmpty, 1, 1},
		{"{{{x}}}", mailmerge.CodeUnsupported, 1, 1},
		{"{{#if x}}", mailmerge.CodeUnsupported, 1, 1},
		{"{{ #if x}}", mailmerge.CodeUnsupported, 1, 1},
		{"{{x}}{{/if}}", mailmerge.CodeUnsupported, 1, 6},
		{"{{>x}}", mailmerge.CodeUnsupported, 1, 1},
		{"{{!x}}", mailmerge.CodeUnsupported, 1, 1},
		{"{{&x}}", mailmerge.CodeUnsupported, 1, 1},
		{"{{^x}}", mailmerge.CodeUnsupported, 1, 1},
		{"{{=x}}", mailmerge.CodeUnsupported, 1, 1},
		{"{{x = 1}}", mailmerge.CodeName, 1, 1},
		{"{{x 'y'}}", mailmerge.CodeName, 1, 1},
		{"{{($)}}", mailmerge.CodeName, 1, 1},
		{"{{raz&atilde;o}}", mailmerge.CodeName, 1, 1},
		{"{{x\ny}}", mailmerge.CodeName, 1, 1},
		{"{{x\ty}}", mailmerge.CodeName, 1, 1},
		{"{{-}}", mailmerge.CodeName, 1, 1},
		{"{{" + strings.Repeat("ç", 101) + "}}", mailmerge.CodeNameLength, 1, 1},
		{"ok\x00", mailmerge.CodeNotText, 1, 3},
		{"ok\n\xff\x00", mailmerge.CodeNotText, 2, 1},
	} {
		for kind, parse := range map[string]func(string) (*mailmerge.Template, error){
			"text": mailmerge.ParseText, "html": mailmerge.ParseHTML,
		} {
			template, err := parse(tt.template)
			var fault *mailmerge.Fault
			if !errors.As(err, &fault) {
				t.Errorf("%s %q: %v, want %s", kind, tt.template, err, tt.code)
				continue
			}
			if fault.Code != tt.code || fault.Line != tt.line || fault.Column != tt.column || template != nil {
				t.Errorf("%s %q: %v, want %s at line %d, column %d", kind, tt.template, err, tt.code, tt.line, tt.column)
			}
		}
	}
}

func TestParse_Names(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"x", "1", "razão social", "raza\u0303o", "e-mail", "a.b/c_d", "Ж", "名前", "नाम", "٣", "-a", "Valor (R$)", "% a", "Pedido #", "Preço [€]:", strings.Repeat("ç", 100),
	} {
		template, err := mailmerge.ParseHTML("{{ " + name + " }}")
		if err != nil || len(template.Fields()) != 1 || template.Fields()[0] != name {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestParseHTML_PlaceFaults(t *testing.T) {
	t.Parallel()
	// The fault is at the bar, which is cut, where there is one.
	for code, templates := range map[string][]string{
		mailmerge.CodeInTag: {
			"<{{x}}>", "<b{{x}}>", "<{{x}} a", "a < b <{{x}}", "</{{x}}>", "</b {{x}}>", `<a href="{{x}}`, `<a title='>{{x}}`, "<b {{x}}",
		},
		mailmerge.CodeInName: {
			"<b {{x}}>", `<b {{x}}="a">`, `<b a{{x}}="a">`, `<b {{x}}a>`, `<b a="b" {{x}}>`, `<b a="b"{{x}}>`, "<b a=c {{x}}>", "<b on{{x}}>",
		},
		mailmerge.CodeUnquoted: {"<a href={{x}}>", "<a href=https://a/{{x}} b>", "<a b = {{x}}>", "<img alt={{x}}/>"},
		mailmerge.CodeInAttribute: {
			`<a rel="{{x}}">`, `<meta http-equiv="{{x}}">`, `<meta http-equiv="refresh" content="0;url={{x}}">`, `<meta charset="{{x}}">`,
			`<meta content="{{x}}" HTTP-EQUIV=refresh>`, `<meta name="{{x}}">`, `<input type="{{x}}">`, `<form method="{{x}}">`,
			`<iframe sandbox="{{x}}">`, `<animate attributeName="{{x}}">`, `<html xmlns="{{x}}">`, `<html xmlns:v="{{x}}">`,
		},
		mailmerge.CodeInHandler: {
			`<a onclick="{{x}}">`, `<a ONLOAD='a({{x}})'>`, `<a on="tap:{{x}}">`, `<a x:onclick="{{x}}">`,
		},
		mailmerge.CodeInSrcdoc: {`<iframe srcdoc="{{x}}">`, `<iframe srcdoc="<p>{{x}}</p>">`},
		mailmerge.CodeInScript: {
			"<script>{{x}}</script>", `<script>"{{x}}"</script>`, `<script src="{{x}}"></script>`, "<SCRIPT>{{x}}", `<v:script a="{{x}}">`,
		},
		mailmerge.CodeInStyle: {
			"<style>{{x}}</style>", "<style>a{color:{{x}}}</style>", `<p style="{{x}}">`, `<p style="color:{{x}}">`, `<path fill="{{x}}">`,
			`<style media="{{x}}">`,
		},
		mailmerge.CodeInRawText: {
			"<textarea>{{x}}</textarea>", "<noscript>{{x}}</noscript>", `<noscript><a href="{{x}}"></noscript>`, "<iframe>{{x}}</iframe>",
			"<xmp>{{x}}</xmp>", "<noembed>{{x}}</noembed>", "<noframes>{{x}}</noframes>", "<plaintext>{{x}}", "<title><b>{{x}}</title>",
			"<title>{{x}}<b></title>", "<plaintext></plaintext>{{x}}",
		},
		mailmerge.CodeInComment: {
			"<!--{{x}}-->", "<!-- a {{x}} b -->", "<!--[if mso]><b>{{x}}</b><![endif]-->", "<!{{x}}>", "<!-{{x}}->", "<?{{x}}>", "<?a {{x}}?>",
			"</ {{x}}>", "<!--a--!{{x}}-->", "<!--{{x}}", "<![CDATA[{{x}}]]>", "<![endif{{x}}]>",
		},
		mailmerge.CodeInDoctype: {"<!doctype {{x}}>", "<!DOCTYPE html {{x}}>", `<!DOCTYPE html "{{x}}">`},
		mailmerge.CodeAfterReference: {
			"&{{x}}", "&#{{x}};", "&#x{{x}}", "&#6{{x}}", "&amp{{x}}", "AT&T{{x}}", `<a title="&{{x}}">`, `<a title="&not{{x}}">`,
			`<a href="https://a?b&{{x}}=c">`, "<title>&{{x}}</title>", "b &l{{x}}",
		},
		mailmerge.CodeInAddress: {
			`<a href="javascript:{{x}}">`, `<a href="java{{x}}">`, `<a href="java{{x}}:alert(1)">`, `<a href="{{x}}{{x}}">`,
			`<a href="&#106;avascript:{{x}}">`, `<a href="data:text/html,{{x}}">`, `<a href="/{{x}}">`, `<a href="//{{x}}">`, `<a href="a/{{x}}">`,
			`<a href="?a={{x}}">`, `<a href="https:{{x}}">`, `<a href="https:/{{x}}">`, `<a href="https:///{{x}}">`, `<a href="https://\\{{x}}">`,
			`<a href="ftp://a/{{x}}">`, `<a href="https://a{{x}}">`, `<a href="https://a.{{x}}/">`, `<a href="https://a@{{x}}/">`,
			`<a href="https://{{x}}@a.b/">`, `<a href="https://a:{{x}}/">`, `<a href="https://{{x}}.">`, `<a href="https://{{x}}a/">`,
			`<a href="https://{{x}}%2e.b/">`, `<a href="https://{{x}}:a@b.c/">`, `<a href="https://a/%{{x}}">`, `<a href="https://a/?%2{{x}}">`,
			`<a href="https://a/&#37;{{x}}">`, "<a href=\"https://a/%\n{{x}}\">", `<a href="{{x}}a{{x}}">`, `<img srcset="https://a 1x, b/{{x}}">`,
			`<img srcset="https://a/b,c{{x}}">`, `<param value="a{{x}}">`, `<body background="a{{x}}">`, `<image xlink:href="a{{x}}">`,
			"<a href=\"jav\nascript:{{x}}\">", `<img srcset="https://{{x}}.a 1x, https://a.{{x}} 2x">`,
			`<a href="https://` + strings.Repeat("{{x}}.", 300) + `a/">`,
		},
		mailmerge.CodeAmbiguous: {
			`<b a"="{{x}}">`, `<b a="1" a="{{x}}">`, `<b/a="{{x}}">`, `<b a="{{x}}" <b>`, `<b a=b"c d="{{x}}">`, `<b =a="{{x}}">`, "<b a=`{{x}}`>",
			`<iframe>|<a title="</iframe><b class="{{x}}">`,
			`<noscript>|<a title="</noscript><b class="{{x}}">`,
			`<noscript>|<iframe><a title="</iframe><i class="></noscript><b class="{{x}}">`,
			`<noscript>|<!-- </noscript><b class="{{x}}">`,
			`<noscript>|<iframe></noscript>{{x}}`,
			`<xmp>|<a title='</xmp><b class='{{x}}'>`,
			`<style>|<a title="</style><b class="{{x}}">`,
			`<title>|<a </title><b class="{{x}}">`,
			`|<!--[if mso]><a title="<![endif]--><b class="{{x}}">`,
			`|<!--[if mso]><style><![endif]--><b class="{{x}}">`,
			`|<!-- [ IF mso]><noscript><a title="</noscript><![endif]--><b class="{{x}}">`,
			`<svg>|<![CDATA[><a title="]]><a href={{x}}>">`,
		},
	} {
		for _, template := range templates {
			at := strings.IndexByte(template, '|')
			template = strings.ReplaceAll(template, "|", "")
			_, err := mailmerge.ParseHTML("\n" + template)
			var fault *mailmerge.Fault
			if !errors.As(err, &fault) || fault.Code != code {
				t.Errorf("%s: %v, want %s", template, err, code)
				continue
			}
			if at >= 0 && (fault.Line != 2 || fault.Column != at+1) {
				t.Errorf("%s: %v, want column %d", template, err, at+1)
			}
		}
	}
}

// TestParseHTML_WithoutFields accepts what only htmlcheck rejects.
func TestParseHTML_WithoutFields(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"", "<script>", `<a title="`, "<![CDATA[ <svg>", `<!-- \{{x}} -->`} {
		template, err := mailmerge.ParseHTML(body)
		if err != nil {
			t.Errorf("%q: %v", body, err)
			continue
		}
		got, err := render(template, nil)
		if want := strings.ReplaceAll(body, `\`, ""); got != want || err != nil {
			t.Errorf("%q, %v, want %q", got, err, want)
		}
	}
}

func TestParse_TooManyTags(t *testing.T) {
	t.Parallel()
	for kind, parse := range map[string]func(string) (*mailmerge.Template, error){
		"text": mailmerge.ParseText, "html": mailmerge.ParseHTML, "subject": mailmerge.ParseSubject,
	} {
		tags := "s" + strings.Repeat("{{x}}", mailmerge.MaxTags)
		if _, err := parse(tags); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		_, err := parse(tags + "{{x}}")
		if fault, ok := errors.AsType[*mailmerge.Fault](err); !ok || fault.Code != mailmerge.CodeTooManyTags {
			t.Errorf("%s: %v", kind, err)
		}
	}
}
