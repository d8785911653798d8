package mailmerge_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"email-gateway/shared/mailmerge"
)

func TestTemplate_Bind(t *testing.T) {
	t.Parallel()
	template, err := mailmerge.ParseText("{{b}} {{a}} {{b}} {{ c }}")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"b", "a", "c"}, template.Fields()); diff != "" {
		t.Error(diff)
	}
	template.Fields()[0] = "changed"
	columns := map[string]int{"a": 0, "b": 3, "c": -1}
	index := func(name string) (int, bool) { i, ok := columns[name]; return i, ok }
	if b, missing := template.Bind(index); b != nil || cmp.Diff([]string{"c"}, missing) != "" {
		t.Errorf("%v, missing %q", b, missing)
	}
	columns["c"] = 1
	b, missing := template.Bind(index)
	if len(missing) > 0 {
		t.Fatalf("missing %q", missing)
	}
	got, err := b.AppendTo([]byte("> "), []string{"A", "C", "unused", "B"})
	if err != nil || string(got) != "> B A B C" {
		t.Errorf("%q, %v", got, err)
	}
	got, err = b.AppendTo([]byte("> "), []string{"A", "C", "unused"})
	var fault *mailmerge.ValueFault
	if err == nil || errors.As(err, &fault) || string(got) != "> " {
		t.Errorf("too few values: %q, %v", got, err)
	}
	if err := b.Check([]string{"A", "C", "unused"}); err == nil || errors.As(err, &fault) {
		t.Errorf("Check of too few values: %v", err)
	}
	got, err = b.AppendTo([]byte("> "), []string{"A", "\x00", "", "B"})
	if !errors.As(err, &fault) || fault.Field != "c" || string(got) != "> " {
		t.Errorf("a bad value: %q, %v", got, err)
	}
}

// TestBound_Shared renders in many goroutines at once, for the race detector.
func TestBound_Shared(t *testing.T) {
	t.Parallel()
	b := bind(t, `<a href="https://a/{{x}}">{{x}}</a>`)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 100 {
				got, err := b.AppendTo(nil, []string{fmt.Sprint(i)})
				if want := fmt.Sprintf(`<a href="https://a/%d">%d</a>`, i, i); err != nil || string(got) != want {
					t.Errorf("%q, %v, want %q", got, err, want)
				}
			}
		})
	}
	wg.Wait()
}

func TestBound_Size(t *testing.T) {
	t.Parallel()
	var bounds []*mailmerge.Bound
	for _, template := range []string{
		"no field", "<p>{{x}}", "<pre>{{x}}</pre>", `<p title="a{{x}}b{{x}}">`, `<a href="{{x}}">`, `<a href="{{x}}/{{x}}?{{x}}#{{x}}">`,
		`<img srcset="{{x}}, {{x}}/{{x}}">`, `<a href="https://{{x}}/">`, `<a href="mailto:{{x}}?a={{x}}">`, `<a href="tel:{{x}}">`,
	} {
		bounds = append(bounds, bind(t, template))
	}
	rapid.Check(t, func(t *rapid.T) {
		values := []string{rapid.SampledFrom([]string{"", " https://a", "tel:"}).Draw(t, "scheme") +
			rapid.StringOf(rapid.RuneFrom([]rune("a.@+()&<>\"'`,; \n\r\tç"))).Draw(t, "value")}
		for _, b := range bounds {
			got, err := b.AppendTo(nil, values)
			if diff := cmp.Diff(err, b.Check(values)); diff != "" {
				t.Errorf("Check differs from AppendTo for %q: %s", values, diff)
			}
			if err != nil {
				continue
			}
			if size := b.Size(values); size != len(got) {
				t.Errorf("Size = %d, want %d for %q", size, len(got), got)
			}
		}
	})
}

func bind(t testing.TB, html string) *mailmerge.Bound {
	t.Helper()
	template, err := mailmerge.ParseHTML(html)
	if err != nil {
		t.Fatal(err)
	}
	next := -1
	b, missing := template.Bind(func(string) (int, bool) { next++; return next, true })
	if len(missing) > 0 {
		t.Fatalf("missing %q", missing)
	}
	return b
}
