package template_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"email-gateway/shared/template"
)

// generated is a part of a template, with sections up to depth.
func generated(random *rand.Rand, depth int) string {
	variables := []string{"{{a}}", "{{o.a}}", "{{o.b}}", "{{o.p.a}}", "{{d.a}}", "{{d.b|-}}", "{{a|none}}", "{{b}}", "x"}
	sections := []string{"o", "o.p", "p", "d", "q", "a", "d.b"}
	var b strings.Builder
	for range random.IntN(4) {
		if depth > 0 && random.IntN(2) == 0 {
			name := sections[random.IntN(len(sections))]
			b.WriteString("{{" + []string{"#", "^"}[random.IntN(2)] + name + "}}" + generated(random, depth-1) + "{{/" + name + "}}")
		} else {
			b.WriteString(variables[random.IntN(len(variables))])
		}
	}
	return b.String()
}

// The worker renders the subject alone, with the fields that the whole template uses; a dry run renders the whole template.
func TestRow_SubjectAlone(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	optional := false
	declared := []template.Variable{{Name: "d", Default: []byte(`{"a": "D", "b": "E"}`)}, {Name: "q", Required: &optional}}
	columns := []string{"a", "b", "o.a", "o.b", "o.p.a", "p.c", "d.b", "d.c", "q.a", "unused"}
	compared := 0
	for range 10_000 {
		subject := "s" + generated(random, 2)
		whole, faults := template.Parse(template.Source{Subject: subject, Text: "t" + generated(random, 2), Variables: declared})
		if len(faults) > 0 {
			continue
		}
		uses := whole.Uses(template.Named(columns))
		if len(uses.Missing) > 0 || len(uses.Conflict) > 0 {
			continue
		}
		alone, faults := template.ParseSubject(subject, declared)
		if len(faults) > 0 {
			t.Fatal(faults)
		}
		fields := make([]string, len(uses.Names))
		for i := range fields {
			if random.IntN(2) == 0 {
				fields[i] = fmt.Sprint("v", i)
			}
		}
		used := alone.Uses(template.Named(uses.Names)).Names
		var names, cells []string
		for i, name := range uses.Names {
			if slices.Contains(used, name) {
				names, cells = append(names, name), append(cells, fields[i])
			}
		}
		want, err := whole.Row(uses.Names).Render(template.Values{Fields: fields})
		if err != nil {
			continue
		}
		compared++
		got, err := alone.Row(names).Render(template.Values{Fields: cells})
		if err != nil || got.Subject != want.Subject {
			t.Fatalf("subject %q of %+v\nwith %q = %q: %q, %v; alone with %q: want %q", subject, whole, uses.Names, fields, got.Subject, err, names, want.Subject)
		}
	}
	if compared < 1000 {
		t.Errorf("%d templates are too few to say anything", compared)
	}
}
