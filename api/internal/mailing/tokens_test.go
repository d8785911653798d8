package mailing_test

import (
	"log/slog"
	"regexp"
	"testing"

	"email-gateway/api/internal/mailing"
	"email-gateway/shared/waittest"
)

func TestTokens(t *testing.T) {
	t.Parallel()
	tokens := mailing.NewTokens(slog.New(slog.DiscardHandler))
	before := tokens.Take() // an empty pool does not block
	if err := tokens.Start(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := tokens.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	full := func() {
		t.Helper()
		waittest.Until(t, "1,000 tokens are ready", func() bool { return tokens.Available() >= 1000 })
	}
	full()
	form := regexp.MustCompile(`^[A-Z0-9]{26}$`)
	seen := map[string]bool{before: true}
	for range 5000 {
		token := tokens.Take()
		if seen[token] || !form.MatchString(token) {
			t.Fatalf("token %q is invalid, or was returned before (%v)", token, seen[token])
		}
		seen[token] = true
	}
	full()
}
