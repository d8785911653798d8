package mailing_test

import (
	"fmt"
	"strings"
	"testing"

	"email-gateway/api/internal/csvfile"
	"email-gateway/api/internal/mailing"
	"email-gateway/shared/template"
)

// variants are fields of one column with n different defaults, which are at least so many bytes long.
func variants(column string, n int, long ...int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "{{%s|%d%s}}", column, i, strings.Repeat("x", append(long, 1)[0]-1))
	}
	return b.String()
}

// An entry is in proportion to its line: it stores each different default and spelling of a column, of which there are few.
func TestValidator_EntrySize(t *testing.T) {
	t.Parallel()
	const columns = 20
	l := templateSet{subject: "x"}
	header := "email"
	for i := range columns {
		header += fmt.Sprintf(";c%02d", i)
		l.text += variants(fmt.Sprintf("c%02d", i), 8, 25)
	}
	for _, cells := range []string{"", strings.Repeat(";x", columns), strings.Repeat(";"+strings.Repeat("x", 3000), columns)} {
		line := "ana@real.example" + cells
		reading, validator, _, _ := openedFile(t, l, header+"\n"+line+"\n")
		for got, err := range mailing.Lines(reading, validator) {
			if err != nil || got.Entry == nil {
				t.Fatalf("%+v, %v", got.Reject, err)
			}
			if n := len(strings.Join(got.Entry.Fields, "")); n > 8*len(line)+4096 {
				t.Errorf("a line of %d bytes is an entry with %d bytes of fields", len(line), n)
			}
		}
	}
}

// The columns of a stored template have the same limit: each spelling of a name is a field of its own. A name of several
// columns is a fault.
func TestStoredTemplate_Columns(t *testing.T) {
	t.Parallel()
	const file = "email;ab;cidade;Cidade\n"
	inspector := csvfile.NewInspector()
	_, _ = inspector.Write([]byte(file))
	reader, err := csvfile.Open(strings.NewReader(file), inspector.Inspection(), csvfile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	spellings := []string{"ab", "aB", "Ab", "AB", "a_b", "A_b", "a_B", "A_B", "a-b"}
	for text, want := range map[string]string{
		"{{" + strings.Join(spellings[:8], "}}{{") + "}}": "",
		"{{" + strings.Join(spellings, "}}{{") + "}}":     "template INVALID_TEMPLATE",
		"{{ab}} {{cidade}}":                               "template DUPLICATE_COLUMN",
	} {
		source := template.Source{Subject: "s", Text: text}
		parsed, faults := template.Parse(source)
		if len(faults) > 0 {
			t.Fatal(faults)
		}
		got := ""
		for _, f := range (&mailing.StoredTemplate{Source: source, Parsed: parsed}).CheckFields(reader.Header()) {
			got += f.Field + " " + f.Code
		}
		if got != want {
			t.Errorf("%s: %s, want %q", text, got, want)
		}
	}
}
