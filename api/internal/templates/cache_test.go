package templates

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"

	"email-gateway/shared/template"
)

// A company that uses many versions evicts its own from the cache, and nothing of a company that uses one.
func TestCache_FairAndBounded(t *testing.T) {
	t.Parallel()
	large, faults := template.Parse(template.Source{Subject: "s", Text: strings.Repeat("a", 512<<10)})
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	c := newCache()
	quiet := version{company: uuid.New(), name: "invoice", number: 1}
	c.put(quiet, large)
	for i := range 200 {
		c.put(version{company: quiet.company, name: "other", number: 1}, large) // twice is once
		c.put(version{company: uuid.NameSpaceDNS, name: fmt.Sprint(i), number: 1}, large)
	}
	if _, ok := c.get(quiet); !ok {
		t.Error("the quiet company's version was evicted")
	}
	if _, ok := c.get(version{company: uuid.NameSpaceDNS, name: "199", number: 1}); !ok {
		t.Error("the newest version is not cached")
	}
	if own := c.companies[uuid.NameSpaceDNS]; own.size > maxCachedPerCompany || own.entries.Len() < 10 {
		t.Errorf("%d bytes in %d entries of one company", own.size, own.entries.Len())
	}
	// Many companies stay within the common limit.
	for range 200 {
		c.put(version{company: uuid.New(), name: "x", number: 1}, large)
	}
	size := 0
	for _, s := range c.companies {
		size += s.size
	}
	if c.size != size || size > maxCached || len(c.entries) < 50 {
		t.Errorf("%d bytes counted, %d kept in %d entries", c.size, size, len(c.entries))
	}
}

func TestFallback(t *testing.T) {
	t.Parallel()
	for locale, want := range map[string]string{"": "", "pt": "pt ", "pt-BR": "pt-BR pt ", "zh-Hant-TW": "zh-Hant-TW zh-Hant zh "} {
		if got := strings.Join(Fallback(locale), " "); got != want {
			t.Errorf("%s: %q", locale, got)
		}
	}
}

func TestRef(t *testing.T) {
	t.Parallel()
	for _, m := range []Identity{{Name: "a", Version: 3}, {Name: "a.b-c", Locale: "pt-BR", Version: 12}} {
		if name, locale, number := ParseRef(m.Ref()); name != m.Name || locale != m.Locale || number != m.Version {
			t.Errorf("%s: %s %s %d", m.Ref(), name, locale, number)
		}
	}
}
