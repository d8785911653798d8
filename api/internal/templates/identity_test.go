package templates

import (
	"strings"
	"testing"
)

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
