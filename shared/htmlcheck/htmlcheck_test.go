package htmlcheck_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"email-gateway/shared/htmlcheck"
)

// files returns the content of testdata/dir/*.html by name.
func files(tb testing.TB, dir string) map[string]string {
	tb.Helper()
	paths, err := filepath.Glob(filepath.Join("testdata", dir, "*.html"))
	if err != nil || len(paths) == 0 {
		tb.Fatalf("no files in testdata/%s: %v", dir, err)
	}
	content := make(map[string]string, len(paths))
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			tb.Fatal(err)
		}
		content[strings.TrimSuffix(filepath.Base(path), ".html")] = string(b)
	}
	return content
}

// TestRefused expects of each file the rule its name begins with.
func TestRefused(t *testing.T) {
	t.Parallel()
	for name, html := range files(t, "refused") {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rule, _, _ := strings.Cut(name, ".")
			want := strings.ToUpper(strings.ReplaceAll(rule, "-", "_"))
			for check, err := range map[string]error{
				"Check":           htmlcheck.Check(html),
				"CheckThoroughly": htmlcheck.CheckThoroughly(html),
			} {
				var v *htmlcheck.Violation
				if !errors.As(err, &v) || v.Rule != want {
					t.Errorf("%s = %v, want %s", check, err, want)
				}
			}
		})
	}
}

func TestAccepted(t *testing.T) {
	t.Parallel()
	for name, html := range files(t, "accepted") {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := htmlcheck.Check(html); err != nil {
				t.Errorf("Check = %v, want nil", err)
			}
			if err := htmlcheck.CheckThoroughly(html); err != nil {
				t.Errorf("CheckThoroughly = %v, want nil", err)
			}
		})
	}
}

// TestOrdinary checks that the shortcut for ordinary markup applies to the emails that it was made for.
func TestOrdinary(t *testing.T) {
	t.Parallel()
	accepted := files(t, "accepted")
	for _, name := range []string{
		"order-confirmation", "mso-button", "mso-ghost-table", "mso-revealed", "usual-schemes",
		"preheader", "words-in-text", "meta-content-type", "data-images", "crlf-and-tabs",
	} {
		if !htmlcheck.Ordinary(accepted[name]) {
			t.Errorf("the shortcut for ordinary markup does not apply to %s", name)
		}
	}
}

func TestBodyAsAWhole(t *testing.T) {
	t.Parallel()
	fill := func(n int) string { return "<p>" + strings.Repeat("é", n/2-2) + "." }
	for _, tt := range []struct {
		name string
		html string
		want error
	}{
		{"empty", "", htmlcheck.ErrEmpty},
		{"white space", " \r\n\t\u00a0", htmlcheck.ErrEmpty},
		{"largest", fill(htmlcheck.MaxBytes), nil},
		{"one byte larger", fill(htmlcheck.MaxBytes) + ".", htmlcheck.ErrTooLarge},
		{"Latin-1", "<p>Ol\xe1</p>", htmlcheck.ErrNotUTF8},
		{"surrogate", "<p>\xed\xa0\x80</p>", htmlcheck.ErrNotUTF8},
		{"NUL", "<p>Ol\x00</p>", htmlcheck.ErrNUL},
		{"deep", strings.Repeat("<div>", 520), htmlcheck.ErrTooDeep},
		{"many bodies", strings.Repeat("<body a=b>", 20_000), htmlcheck.ErrTooComplex},
		{"quoted replies", strings.Repeat("<html><body><p>Oi</p></body></html>", 10), nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if err := htmlcheck.Check(tt.html); !errors.Is(err, tt.want) {
				t.Errorf("Check = %v, want %v", err, tt.want)
			}
		})
	}
}

func TestViolation(t *testing.T) {
	t.Parallel()
	secret := "maria@example.com"
	for _, tt := range []struct{ html, where string }{
		{`<td onclick="` + secret + `">`, "td/onclick"},
		{`<script>` + secret, "script"},
		{`<a ` + strings.Repeat("x", 100) + `:onload=1>`, "a/" + strings.Repeat("x", 40)},
		{"<a on\u00e9=1 onx\u00e9\n=1>", "a/onx?"},
		{`<!--[if mso]><v:rect onclick=1><![endif]-->`, "conditional comment > v:rect/onclick"},
		{`<iframe srcdoc="<a href='javascript:` + secret + `'>">`, "iframe/srcdoc > a/href"},
		{`<style>p{width:expression(` + secret + `)}</style>`, "style"},
	} {
		err := htmlcheck.Check(tt.html)
		var v *htmlcheck.Violation
		if !errors.As(err, &v) || v.Where != tt.where {
			t.Errorf("Check(%q) = %v, want one at %s", tt.html, err, tt.where)
			continue
		}
		if strings.Contains(err.Error(), secret) {
			t.Errorf("the error %q quotes the body", err)
		}
	}
}
