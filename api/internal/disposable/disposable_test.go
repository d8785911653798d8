package disposable

import (
	"strings"
	"testing"
)

func TestDomain(t *testing.T) {
	t.Parallel()
	for domain, want := range map[string]bool{
		"mailinator.com":          true,
		"MAILINATOR.com":          true,
		"mailinator.com.":         true,
		"sub.mailinator.com":      true,
		"a.b.c.yopmail.com":       true,
		"10minutemail.com":        true,
		"emailtemporario.com.br":  true,
		"xmailinator.com":         false,
		"mailinator.com.br":       false,
		"mailinator":              false,
		"com":                     false,
		"com.br":                  false,
		"gmail.com":               false,
		"hotmail.com":             false,
		"outlook.com":             false,
		"outlook.com.br":          false,
		"yahoo.com.br":            false,
		"icloud.com":              false,
		"uol.com.br":              false,
		"bol.com.br":              false,
		"terra.com.br":            false,
		"ig.com.br":               false,
		"globo.com":               false,
		"example.com":             false,
		"":                        false,
		".":                       false,
		"..":                      false,
		"mailinator.com..":        false,
		strings.Repeat(".", 1000): false,
	} {
		if got := Domain(domain); got != want {
			t.Errorf("Domain(%q) = %v, want %v", domain, got, want)
		}
	}
}

// A refreshed list must have the expected format: an HTML page or another format would match nothing.
func TestList(t *testing.T) {
	t.Parallel()
	seen := 0
	for line := range strings.Lines(list) {
		domain := strings.TrimSuffix(line, "\n")
		if domain != strings.ToLower(domain) || strings.Trim(domain, ".") != domain || !strings.Contains(domain, ".") ||
			strings.ContainsAny(domain, " \t\r#/@*") {
			t.Errorf("%q is not a bare domain in lower case", domain)
		}
		seen++
	}
	if seen < 5000 {
		t.Errorf("the list has %d domains, want at least 5000", seen)
	}
	if len(domains()) != seen {
		t.Errorf("%d different domains on a list of %d", len(domains()), seen)
	}
}

func TestDomain_AllocatesNothing(t *testing.T) {
	Domain("gmail.com")
	if n := testing.AllocsPerRun(100, func() { Domain("some.sub.mailinator.com"); Domain("gmail.com") }); n > 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

func BenchmarkDomain(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		Domain("gmail.com")
	}
}
