package template_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"email-gateway/shared/rules"
	"email-gateway/shared/template"
)

func render(tb testing.TB, s template.Source, data string) (template.Rendered, rules.Faults) {
	tb.Helper()
	if s.Subject == "" {
		s.Subject = "s"
	}
	if s.HTML == "" && s.Text == "" {
		s.Text = "t"
	}
	t, faults := template.Parse(s)
	if len(faults) > 0 {
		tb.Fatalf("%.200q: %+v", s.HTML+s.Text, faults)
	}
	read, err := template.ReadData([]byte(data))
	if err != nil {
		tb.Fatal(err)
	}
	return t.Render("template.data", read)
}

// The cases are those of the Mustache specification (interpolation, sections, inverted and comments) whose
// results this language shares: names that the data lacks and escaping differ.
func TestRender_Mustache(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ template, data, want string }{
		"no interpolation":             {"Hello from {Mustache}!\n", `{}`, "Hello from {Mustache}!\n"},
		"basic interpolation":          {"Hello, {{subject}}!\n", `{"subject": "world"}`, "Hello, world!\n"},
		"no re-interpolation":          {"{{template}}: {{planet}}", `{"template": "{{planet}}", "planet": "Earth"}`, "{{planet}}: Earth"},
		"integer":                      {`"{{mph}} miles an hour!"`, `{"mph": 85}`, `"85 miles an hour!"`},
		"decimal":                      {`"{{power}} jiggawatts!"`, `{"power": 1.210}`, `"1.210 jiggawatts!"`},
		"dotted names":                 {`{{person.name}} == {{#person}}{{name}}{{/person}}`, `{"person": {"name": "Joe"}}`, `Joe == Joe`},
		"dotted, arbitrary depth":      {`{{a.b.c.d.e.name}}`, `{"a": {"b": {"c": {"d": {"e": {"name": "Phil"}}}}}}`, `Phil`},
		"dotted, initial resolution":   {`{{#a}}{{b.c.d.e.name}}{{/a}}`, `{"a": {"b": {"c": {"d": {"e": {"name": "Phil"}}}}}, "b": {"c": {"d": {"e": {"name": "Wrong"}}}}}`, `Phil`},
		"implicit iterator":            {`Hello, {{.}}!`, `{}`, ""},
		"whitespace in tag":            {"| {{ string }} |", `{"string": "---"}`, "| --- |"},
		"standalone interpolation":     {"  {{string}}\n", `{"string": "---"}`, "  ---\n"},
		"truthy":                       {`{{#boolean}}This{{/boolean}}`, `{"boolean": true}`, "This"},
		"falsey":                       {`{{#boolean}}This{{/boolean}}`, `{"boolean": false}`, ""},
		"null is falsey":               {`{{#null}}This{{/null}}`, `{"null": null}`, ""},
		"context":                      {`{{#context}}Hi {{name}}.{{/context}}`, `{"context": {"name": "Joe"}}`, "Hi Joe."},
		"parent contexts":              {`{{#sec}}{{a}}, {{b}}, {{c.d}}{{/sec}}`, `{"a": "foo", "b": "wrong", "sec": {"b": "bar"}, "c": {"d": "baz"}}`, "foo, bar, baz"},
		"variable test":                {`{{#foo}}{{.}} is {{foo}}{{/foo}}`, `{"foo": "bar"}`, "bar is bar"},
		"list contexts":                {`{{#tops}}{{#middles}}{{tname.lower}}{{mname}}.{{#bottoms}}{{tname.upper}}{{mname}}{{bname}}.{{/bottoms}}{{/middles}}{{/tops}}`, `{"tops": [{"tname": {"upper": "A", "lower": "a"}, "middles": [{"mname": "1", "bottoms": [{"bname": "x"}, {"bname": "y"}]}]}]}`, "a1.A1x.A1y."},
		"list":                         {`{{#list}}{{item}}{{/list}}`, `{"list": [{"item": 1}, {"item": 2}, {"item": 3}]}`, "123"},
		"empty list":                   {`{{#list}}Yay lists!{{/list}}`, `{"list": []}`, ""},
		"doubled":                      {"{{#bool}}\n* first\n{{/bool}}\n* {{two}}\n{{#bool}}\n* third\n{{/bool}}\n", `{"bool": true, "two": "second"}`, "* first\n* second\n* third\n"},
		"nested truthy":                {"| A {{#bool}}B {{#bool}}C{{/bool}} D{{/bool}} E |", `{"bool": true}`, "| A B C D E |"},
		"nested falsey":                {"| A {{#bool}}B {{#bool}}C{{/bool}} D{{/bool}} E |", `{"bool": false}`, "| A  E |"},
		"implicit string":              {`"{{#list}}({{.}}){{/list}}"`, `{"list": ["a", "b", "c", "d", "e"]}`, `"(a)(b)(c)(d)(e)"`},
		"implicit decimal":             {`"{{#list}}({{.}}){{/list}}"`, `{"list": [1.10, 2.20]}`, `"(1.10)(2.20)"`},
		"implicit array":               {`"{{#list}}({{#.}}{{.}}{{/.}}){{/list}}"`, `{"list": [[1, 2, 3], ["a", "b", "c"]]}`, `"(123)(abc)"`},
		"dotted truthy":                {`"{{#a.b.c}}Here{{/a.b.c}}" == "Here"`, `{"a": {"b": {"c": true}}}`, `"Here" == "Here"`},
		"surrounding whitespace":       {" | {{#boolean}}\t|\t{{/boolean}} | \n", `{"boolean": true}`, " | \t|\t | \n"},
		"internal whitespace":          {" | {{#boolean}} {{! Important Whitespace }}\n {{/boolean}} | \n", `{"boolean": true}`, " |  \n  | \n"},
		"indented inline sections":     {" {{#boolean}}YES{{/boolean}}\n {{#boolean}}GOOD{{/boolean}}\n", `{"boolean": true}`, " YES\n GOOD\n"},
		"standalone lines":             {"| This Is\n{{#boolean}}\n|\n{{/boolean}}\n| A Line\n", `{"boolean": true}`, "| This Is\n|\n| A Line\n"},
		"indented standalone lines":    {"| This Is\n  {{#boolean}}\n|\n  {{/boolean}}\n| A Line\n", `{"boolean": true}`, "| This Is\n|\n| A Line\n"},
		"standalone line endings":      {"|\r\n{{#boolean}}\r\n{{/boolean}}\r\n|", `{"boolean": true}`, "|\r\n|"},
		"standalone without previous":  {"  {{#boolean}}\n#{{/boolean}}\n/", `{"boolean": true}`, "#\n/"},
		"standalone without newline":   {"#{{#boolean}}\n/\n  {{/boolean}}", `{"boolean": true}`, "#\n/\n"},
		"padding":                      {`|{{# boolean }}={{/ boolean }}|`, `{"boolean": true}`, "|=|"},
		"inverted falsey":              {`{{^boolean}}This{{/boolean}}`, `{"boolean": false}`, "This"},
		"inverted truthy":              {`{{^boolean}}This{{/boolean}}`, `{"boolean": true}`, ""},
		"inverted null":                {`{{^null}}This{{/null}}`, `{"null": null}`, "This"},
		"inverted context":             {`{{^context}}Hi {{name}}.{{/context}}`, `{"context": {"name": "Joe"}}`, ""},
		"inverted list":                {`{{^list}}{{n}}{{/list}}`, `{"list": [{"n": 1}]}`, ""},
		"inverted empty list":          {`{{^list}}Yay lists!{{/list}}`, `{"list": []}`, "Yay lists!"},
		"inverted standalone lines":    {"| This Is\n{{^boolean}}\n|\n{{/boolean}}\n| A Line\n", `{"boolean": false}`, "| This Is\n|\n| A Line\n"},
		"inline comment":               {"12345{{! Comment Block! }}67890", `{}`, "1234567890"},
		"multiline comment":            {"12345{{!\n  multi-line\n}}67890\n", `{}`, "1234567890\n"},
		"standalone comment":           {"Begin.\n{{! Comment Block! }}\nEnd.\n", `{}`, "Begin.\nEnd.\n"},
		"indented standalone comment":  {"Begin.\n  {{! Indented! }}\nEnd.\n", `{}`, "Begin.\nEnd.\n"},
		"multiline standalone comment": {"Begin.\n{{!\nSomething's going on here...\n}}\nEnd.\n", `{}`, "Begin.\nEnd.\n"},
		"indented inline comment":      {"  12 {{! 34 }}\n", `{}`, "  12 \n"},
		"comment whitespace":           {"12345 {{! Comment }} 67890", `{}`, "12345  67890"},
	} {
		if name == "implicit iterator" {
			continue // the data is always an object
		}
		got, faults := render(t, template.Source{Text: c.template}, c.data)
		if got.Text != c.want || len(faults) > 0 {
			t.Errorf("%s: %q %v, want %q", name, got.Text, faults, c.want)
		}
	}
}

const invoice = `<h1 title="Nota {{number}}">{{customer.name}}</h1>
<table>
{{#lines}}
<tr class="line{{#last}} last{{/last}}"><td>{{description}}</td><td>{{amount}}</td></tr>
{{/lines}}
{{^lines}}<tr><td>Nada</td></tr>{{/lines}}
</table>
{{#payUrl}}<a href="{{payUrl}}?ref={{number}}">Pagar</a>{{/payUrl}}`

func TestRender_Invoice(t *testing.T) {
	t.Parallel()
	source := template.Source{
		Subject: "Nota {{number}} de {{customer.name}}", HTML: invoice, Text: "{{#lines}}\n- {{description}}: {{amount}}\n{{/lines}}\nTotal {{total|em aberto}}\n",
		Variables: []template.Variable{{Name: "payUrl", Required: new(bool)}, {Name: "total", Required: new(bool)}},
	}
	got, faults := render(t, source, `{"number": "A&1", "customer": {"name": "Ana <b>"}, "payUrl": "https://pay.example/x",
		"lines": [{"description": "Café", "amount": 12.50, "last": false}, {"description": "</td><script>", "amount": "7,00", "last": true}]}`)
	want := template.Rendered{
		Subject: "Nota A&1 de Ana <b>",
		HTML: `<h1 title="Nota A&amp;1">Ana &lt;b&gt;</h1>
<table>
<tr class="line"><td>Café</td><td>12.50</td></tr>
<tr class="line last"><td>&lt;/td&gt;&lt;script&gt;</td><td>7,00</td></tr>

</table>
<a href="https://pay.example/x?ref=A%261">Pagar</a>`,
		Text: "- Café: 12.50\n- </td><script>: 7,00\nTotal em aberto\n",
	}
	if diff := cmp.Diff(want, got); diff != "" || len(faults) > 0 {
		t.Errorf("%s %v", diff, faults)
	}
}

func TestRender_Faults(t *testing.T) {
	t.Parallel()
	optional, required := false, true
	source := template.Source{
		Subject: "{{n}}", HTML: `{{#lines}}{{price}}{{.}}{{/lines}}{{customer.name}}<a href="{{url}}">x</a>{{list}}{{#typo}}x{{/typo}}{{gone}}`,
		Variables: []template.Variable{{Name: "gone", Required: &optional}, {Name: "declared", Required: &required}, {Name: "usual", Default: []byte(`"x"`)}},
	}
	_, faults := render(t, source, `{"n": "a\r\nBcc: x@example.com", "lines": [{"price": 1}, {}], "customer": {}, "url": "javascript:alert(1)", "list": []}`)
	got := map[string]string{}
	for _, f := range faults {
		got[f.Field] = f.Code
	}
	want := map[string]string{
		"template.data.n": "VALUE_CONTROL", "template.data.lines[0]": "VARIABLE_TYPE", "template.data.lines[1]": "VARIABLE_TYPE",
		"template.data.lines[1].price": "VARIABLE_MISSING", "template.data.customer.name": "VARIABLE_MISSING", "template.data.url": "VALUE_ADDRESS",
		"template.data.list": "VARIABLE_TYPE", "template.data.typo": "VARIABLE_MISSING", "template.data.declared": "VARIABLE_MISSING", "subject": "SUBJECT_LENGTH",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestParse_Faults(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"a\n {{{x}}}": "html FIELD_UNSUPPORTED line 2, column 2", "{{&x}}": "html FIELD_UNSUPPORTED line 1, column 1", "{{>x}}": "html FIELD_UNSUPPORTED", "{{=<% %>=}}": "html FIELD_UNSUPPORTED",
		"<p>{{#a}}": "html SECTION_UNBALANCED line 1, column 4", "{{/a}}": "html SECTION_UNBALANCED", "{{#a}}{{#b}}{{/a}}{{/b}}": "html SECTION_UNBALANCED line 1, column 13",
		strings.Repeat("{{#a}}", 17) + strings.Repeat("{{/a}}", 17): "html SECTION_DEPTH",
		strings.Repeat("{{a}}", 10_001):                             "html TEMPLATE_TOO_MANY_TAGS",
		`{{#a}}<a href="{{/a}}x">`:                                  "html SECTION_PLACE",
		`{{#a}}<p title="{{/a}}">`:                                  "html SECTION_PLACE",
		`<p title="{{#a}}">{{/a}}`:                                  "html SECTION_PLACE",
		`{{#a}}<title>{{/a}}</title>`:                               "html SECTION_PLACE",
		`<title>{{#a}}</title>{{/a}}`:                               "html SECTION_PLACE",
		`{{#a}}<script>{{/a}}</script>`:                             "html FIELD_IN_SCRIPT",
		`{{#a}}<!--{{/a}}-->`:                                       "html FIELD_IN_COMMENT",
		`<p {{#a}}title="x"{{/a}}>`:                                 "html FIELD_IN_ATTRIBUTE_NAME",
		`<{{#a}}b{{/a}}>`:                                           "html FIELD_IN_TAG",
		`&{{#a}}x{{/a}}`:                                            "html FIELD_AFTER_REFERENCE",
		`{{#a}}&am{{/a}}p;`:                                         "html FIELD_AFTER_REFERENCE",
		`<pre>{{#a}}{{b}}{{/a}}</pre>`:                              "html SECTION_PLACE",
		`{{#a}}<pre>{{/a}}{{b}}</pre>`:                              "html SECTION_PLACE",
		`<a href="{{#a}}https://x.example{{/a}}">x</a>`:             "html SECTION_PLACE",
		`<p style="{{#a}}color:red{{/a}}">x</p>`:                    "html FIELD_IN_STYLE",
		`<a {{#a}}onclick="{{b}}"{{/a}}>`:                           "html FIELD_IN_ATTRIBUTE_NAME",
		`{{#a|b}}{{/a}}`:                                            "html FIELD_DEFAULT", `{{#}}x{{/}}`: "html FIELD_EMPTY", `{{! x`: "html FIELD_UNCLOSED",
	} {
		_, faults := template.Parse(template.Source{Subject: "s", HTML: text})
		got := ""
		if len(faults) > 0 {
			got = faults[0].Field + " " + faults[0].Code + " " + faults[0].Message
		}
		if !strings.HasPrefix(got, want) {
			t.Errorf("%.60s: %s, want %s", text, got, want)
		}
	}
	for field, source := range map[string]template.Source{
		"subject": {HTML: "x"}, "html": {Subject: "x"}, "text": {Subject: "x", Text: "{{"},
		"variables[0].name":     {Subject: "x", Text: "x", Variables: []template.Variable{{Name: "a.b"}}},
		"variables[1].name":     {Subject: "x", Text: "x", Variables: []template.Variable{{Name: "a"}, {Name: "a"}}},
		"variables[0].default":  {Subject: "x", Text: "x", Variables: []template.Variable{{Name: "a", Default: []byte("{")}}},
		"variables[0].required": {Subject: "x", Text: "x", Variables: []template.Variable{{Name: "a", Default: []byte("1"), Required: new(true)}}},
	} {
		if _, faults := template.Parse(source); !faults.Has(field) {
			t.Errorf("%s: %v", field, faults)
		}
	}
}

func TestRender_Limits(t *testing.T) {
	t.Parallel()
	long := `{"l": [` + strings.Repeat(`"",`, template.MaxValues-4) + `""]}`
	for name, c := range map[string]struct{ template, data, want string }{
		"a long list":              {`{{#l}}<p>01234567890123456789</p>{{/l}}`, long, "html RENDERED_TOO_LARGE"},
		"lists within lists":       {`{{#l}}{{#l}}{{#l}}{{/l}}{{/l}}{{/l}}x`, long, "html TEMPLATE_TOO_COMPLEX"},
		"an invalid value, often":  {`{{#l}}<a href="{{v}}">x</a>{{/l}}`, `{"v": "` + strings.Repeat("a", 200_000) + `", ` + long[1:], "template.data.v VALUE_ADDRESS"},
		"a value that grows":       {`{{#l}}<a href="https://a.example/{{v}}">x</a>{{/l}}`, `{"v": "` + strings.Repeat("ç", 90_000) + `", ` + long[1:], "html RENDERED_TOO_LARGE"},
		"exactly the limit":        {strings.Repeat("a", 524_200) + "{{v}}", `{"v": "` + strings.Repeat("b", 88) + `"}`, ""},
		"one byte over the limit":  {strings.Repeat("a", 524_200) + "{{v}}", `{"v": "` + strings.Repeat("b", 89) + `"}`, "html RENDERED_TOO_LARGE"},
		"faults stop the work too": {`{{#l}}{{v}}{{/l}}`, long, "template.data.v VARIABLE_MISSING"},
	} {
		_, faults := render(t, template.Source{HTML: c.template}, c.data)
		got := ""
		if len(faults) > 0 {
			got = faults[0].Field + " " + faults[0].Code
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	for _, data := range []string{strings.Repeat(`{"a":`, 11) + "1" + strings.Repeat("}", 11), `{"a": 1, "a": 2}`, `[]`, `{} {}`, `{"a": "` + strings.Repeat("a", 512<<10) + `"}`} {
		if _, err := template.ReadData([]byte(data)); err == nil {
			t.Errorf("ReadData accepts %.40s", data)
		}
	}
}

// The data of one email has a limited number of values, as each takes far more memory than its JSON.
func TestReadData_Values(t *testing.T) {
	t.Parallel()
	list := func(n int) []byte { return []byte(`{"a": [` + strings.Repeat(`[],`, n-3) + `1]}`) }
	if _, err := template.ReadData(list(template.MaxValues)); err != nil {
		t.Error(err)
	}
	if _, err := template.ReadData(list(template.MaxValues + 1)); err == nil {
		t.Error("accepted")
	}
}

// A cached template counts with its decoded defaults.
func TestParse_SizeOfDefaults(t *testing.T) {
	t.Parallel()
	size := func(value string) int {
		parsed, faults := template.Parse(template.Source{Subject: "s", Text: "t", Variables: []template.Variable{{Name: "a", Default: json.RawMessage(value)}}})
		if len(faults) > 0 {
			t.Fatal(faults)
		}
		return parsed.Size()
	}
	many := `[` + strings.Repeat(`{},`, 1000) + `1]`
	if text := `"` + strings.Repeat("a", len(many)-2) + `"`; size(many) < size(text)+50_000 {
		t.Errorf("%d bytes, and %d of a text", size(many), size(text))
	}
}
