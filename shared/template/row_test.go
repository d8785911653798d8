package template_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"email-gateway/shared/template"
)

// row renders a template with one row of a file.
func row(tb testing.TB, s template.Source, columns, cells []string) (template.Uses, template.Rendered, []string, error) {
	tb.Helper()
	parsed, faults := template.Parse(s)
	if len(faults) > 0 {
		tb.Fatal(faults)
	}
	uses := parsed.Uses(template.Named(columns))
	fields := make([]string, len(uses.Names))
	for i, name := range uses.Names {
		for j, column := range columns {
			if column == name {
				fields[i] = cells[j]
			}
		}
	}
	v := template.Values{Email: "ana@example.com", Token: "tok", UnsubscribeURL: "https://x.example/u", Fields: fields}
	bound := parsed.Row(uses.Names)
	made, _, empty, err := bound.AppendTo(nil, v)
	var left []string
	for _, i := range empty {
		left = append(left, uses.Names[i])
	}
	rendered := template.Rendered{Subject: string(made.Subject), HTML: string(made.HTML), Text: string(made.Text)}
	if again, renderErr := bound.Render(v); renderErr == nil && again != rendered {
		tb.Errorf("Render: %+v, AppendTo: %+v", again, rendered)
	}
	return uses, rendered, left, err
}

func TestRow(t *testing.T) {
	t.Parallel()
	optional := false
	declared := []template.Variable{
		{Name: "city", Default: []byte(`"Recife"`)}, {Name: "note", Required: &optional}, {Name: "lines", Default: []byte(`[{"text": "a"}, {"text": "b"}]`)},
	}
	for name, c := range map[string]struct {
		text, columns, cells string
		want, empty          string
	}{
		"a column per variable":        {"{{name}} {{email}} {{token}} {{unsubscribe_url}}", "name", "Ana", "Ana ana@example.com tok https://x.example/u", ""},
		"an empty cell":                {"<{{name}}>", "name", "", "<>", "name"},
		"an empty cell with a default": {"{{name|x}} {{city}}", "name,city", ",", "x Recife", ""},
		"optional":                     {"<{{note}}>{{^note}}none{{/note}}", "note", "", "<>none", ""},
		"optional without a column":    {"<{{note}}>{{#note}}{{other}}{{/note}}", "name", "", "<>", ""},
		"a section":                    {"{{#vip}}VIP {{.}} {{vip}}{{/vip}}{{^vip}}no{{/vip}}", "vip", "gold", "VIP gold gold", ""},
		"a section over an empty cell": {"{{#vip}}VIP {{vip}}{{/vip}}{{^vip}}no{{/vip}}", "vip", "", "no", ""},
		"names with dots":              {"{{customer.name}} {{#customer}}{{name}} {{customer.city}}{{/customer}}", "customer.name,customer.city,name", "Ana,Olinda,x", "Ana Ana Olinda", ""},
		"an object for itself":         {"{{#customer}}a{{/customer}}{{^customer}}b{{/customer}}", "customer.name,customer.city", ",Olinda", "a", ""},
		"an empty cell of an object":   {"{{name}} {{phone}} {{#c}}{{name}}: {{phone}}{{/c}}", "name,phone,c.name,c.phone", "Ana,9999,Joao,", "Ana 9999 Joao: ", "c.phone"},
		"its default":                  {"{{#c}}{{name}}: {{phone|none}} {{city}}{{/c}}", "name,phone,c.name,c.phone,c.city", "Ana,9999,Joao,,", "Joao: none Recife", ""},
		"an object in it":              {"{{#c}}{{#p}}{{name}}{{/p}}{{^p}}-{{/p}}{{/c}}{{p.name}}", "c.name,c.p.name,p.name", "Joao,,Ana", "-Ana", ""},
		"names without the object":     {"{{^c}}{{name}}{{/c}}", "name,c.name", ",", "", "name"},
		"an object without values":     {"{{#customer}}{{name}}{{/customer}}{{^customer}}nobody{{/customer}}", "customer.name", "", "nobody", ""},
		"a default that is a list":     {"{{#lines}}{{text}};{{/lines}}", "name", "", "a;b;", ""},
		"a value is never a template":  {"{{name}}", "name", "{{email}}", "{{email}}", ""},
	} {
		uses, made, empty, err := row(t, template.Source{Subject: "s", Text: c.text, Variables: declared}, strings.Split(c.columns, ","), strings.Split(c.cells, ","))
		if err != nil || made.Text != c.want || strings.Join(empty, ",") != c.empty || len(uses.Missing) > 0 {
			t.Errorf("%s: %q, empty %v, missing %v, %v; want %q", name, made.Text, empty, uses.Missing, err, c.want)
		}
	}
}

func TestRow_Uses(t *testing.T) {
	t.Parallel()
	source := template.Source{
		Subject: "{{number}} {{token}}", HTML: `<p>{{customer.name}}{{#vip}}{{level}}{{/vip}}{{gone}}{{#list}}x{{/list}}</p>`,
		Variables: []template.Variable{{Name: "declared"}, {Name: "unsubscribe_url"}, {Name: "customer"}},
	}
	uses, _, _, _ := row(t, source, []string{"number", "vip", "customer.name", "unused"}, make([]string, 4))
	want := template.Uses{
		Names: []string{"number", "customer.name", "vip"}, InSubject: []bool{true, false, false}, Own: []string{"token"}, OwnInSubject: []string{"token"},
		Missing: []string{"level", "gone", "list", "declared"},
	}
	if diff := cmp.Diff(want, uses); diff != "" {
		t.Error(diff)
	}
	if uses, _, _, _ := row(t, template.Source{Subject: "s", Text: "{{a}}{{a.b}}"}, []string{"a", "a.b"}, make([]string, 2)); len(uses.Conflict) != 2 {
		t.Errorf("%+v", uses)
	}
	// A program that renders the subject alone has the columns of the whole template.
	parsed, faults := template.ParseSubject(source.Subject, source.Variables)
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	made, err := parsed.Row(want.Names).Render(template.Values{Token: "t", Fields: []string{"7", "Ana", "x"}})
	if err != nil || made.Subject != "7 t" {
		t.Errorf("%+v, %v", made, err)
	}
}

func TestRow_Faults(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		source template.Source
		cell   string
		code   string
		column int
	}{
		"an address":             {template.Source{Subject: "s", HTML: `<a href="{{v}}">x</a>`}, "javascript:x", "VALUE_ADDRESS", 0},
		"a missing address":      {template.Source{Subject: "s", HTML: `<a href="{{v}}">x</a>`}, "", "VALUE_ADDRESS", 0},
		"a line end":             {template.Source{Subject: "{{v}}", Text: "x"}, "a\r\nBcc: x@example.com", "VALUE_CONTROL", 0},
		"a long subject":         {template.Source{Subject: "{{v}}{{v}}", Text: "x"}, strings.Repeat("ç", 100), "SUBJECT_LENGTH", -1},
		"no subject":             {template.Source{Subject: "{{v}}", Text: "x"}, "", "SUBJECT_LENGTH", -1},
		"a large body":           {template.Source{Subject: "s", Text: strings.Repeat("{{v}}", 9)}, strings.Repeat("a", 60_000), "RENDERED_TOO_LARGE", -1},
		"a list for a text":      {template.Source{Subject: "s", Text: "{{v}}", Variables: []template.Variable{{Name: "v", Default: []byte("[1]")}}}, "", "VARIABLE_TYPE", 0},
		"invalid UTF-8":          {template.Source{Subject: "s", Text: "{{v}}"}, "\xff", "VALUE_NOT_TEXT", 0},
		"nested default lists":   {template.Source{Subject: "s", Text: "{{#l}}{{#l}}{{#l}}{{/l}}{{/l}}{{/l}}x{{v}}", Variables: []template.Variable{{Name: "l", Default: []byte("[" + strings.Repeat("1,", 200) + "1]")}}}, "x", "TEMPLATE_TOO_COMPLEX", -1},
		"the first of two parts": {template.Source{Subject: "{{v}}", HTML: `<a href="{{v}}">x</a>`}, "\n", "VALUE_CONTROL", 0},
	} {
		_, _, _, err := row(t, c.source, []string{"v"}, []string{c.cell})
		var fault *template.RowFault
		if !errors.As(err, &fault) || fault.Code != c.code || fault.Column != c.column || strings.Contains(err.Error(), "javascript") {
			t.Errorf("%s: %v", name, err)
		}
	}
	parsed, _ := template.Parse(template.Source{Subject: "s", Text: "{{a}}"})
	if _, err := parsed.Row([]string{"a"}).Render(template.Values{}); err == nil {
		t.Error("a row without its values was rendered without an error")
	}
}

// The largest template has as many tags as a row may evaluate.
func TestRow_LargestTemplate(t *testing.T) {
	t.Parallel()
	tags := strings.Repeat("{{v}}", 10_000)
	_, made, _, err := row(t, template.Source{Subject: "s", HTML: tags, Text: tags}, []string{"v"}, []string{"x"})
	if err != nil || len(made.HTML) != 10_000 || len(made.Text) != 10_000 {
		t.Errorf("%d, %v", len(made.HTML), err)
	}
}
