package mailing_test

import (
	"log/slog"
	"regexp"
	"testing"
	"time"

	"email-gateway/api/internal/mailing"
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
		deadline := time.Now().Add(3 * time.Minute)
		for tokens.Available() < 1000 {
			if time.Now().After(deadline) {
				t.Fatalf("%d tokens ready", tokens.Available())
			}
			<-time.After(time.Millisecond)
		}
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
