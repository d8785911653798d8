package email_test

import (
	"testing"

	"email-gateway/shared/email"
)

func TestIsBlank(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", " ", "\t", "\r\n", "\u00a0", "\u2003\u3000", "\u200b", "\u200c\u200d", "\u2060", "\ufeff", "\u00ad", "\u200e\u200f", "\u2028", "\u180e", "\u3164", "\u2800", "\ufe0f",
		" \u00a0\u200b\t",
	} {
		if !email.IsBlank(text) {
			t.Errorf("%q is blank", text)
		}
	}
	for _, text := range []string{"a", " a ", "0", "-", ".", "\u200b.", "❤\ufe0f", "\x00", "\x01", "\u0301"} {
		if email.IsBlank(text) {
			t.Errorf("%q is not blank", text)
		}
	}
}

func TestPart(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"": "", " \n": "", "\ufeff\u200b": "", "\ufeff\ufeffa \n": "a \n", " a": " a", "a\ufeff": "a\ufeff"} {
		if got, bytes := email.Part(text), string(email.PartBytes([]byte(text))); got != want || bytes != want {
			t.Errorf("%q: %q and %q, want %q", text, got, bytes, want)
		}
	}
}
