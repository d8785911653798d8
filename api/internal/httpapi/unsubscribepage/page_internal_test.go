package unsubscribepage

import (
	"strings"
	"testing"
)

func TestUnsubscribeLanguage(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]string{
		"": "pt-BR", "*": "pt-BR", "pt-BR,pt;q=0.9,en;q=0.8": "pt-BR", "en-US,en;q=0.9": "en", "en": "en", "EN-gb": "en", "pt-PT": "pt-BR",
		"pt;q=0.3, en;q=0.7": "en", "en;q=0.2, pt-BR;q=0.9": "pt-BR", "fr, en;q=0.5": "en", "ja": "pt-BR", "en;q=0, pt": "pt-BR", "nonsense;;q=x": "pt-BR",
		strings.Repeat("en,", 5000): "pt-BR",
	} {
		if got := languageOf(header); got != want {
			t.Errorf("%.60q: %s, want %s", header, got, want)
		}
	}
}

func TestSenderName(t *testing.T) {
	t.Parallel()
	for from, want := range map[string]string{
		"Acme <billing@acme.example>": "Acme", "=?utf-8?q?Caf=C3=A9?= <a@b.example>": "Café", "a@b.example": "a@b.example", "<a@b.example>": "a@b.example",
	} {
		if got := senderName(from); got != want {
			t.Errorf("%s: %q, want %q", from, got, want)
		}
	}
}
