package reference

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"email-gateway/scripts/bench/environment"
	"email-gateway/scripts/bench/load"
	"email-gateway/shared/htmlcheck"
)

// The loop sends each row to its own address, rendered from the templates, with its own link.
func TestMailingLoop(t *testing.T) {
	t.Parallel()
	type email struct {
		Destination struct{ ToAddresses []string }
		Content     struct {
			Simple struct {
				Subject struct{ Data string }
				Body    struct{ HTML struct{ Data string } }
				Headers []struct{ Name, Value string }
			}
		}
	}
	const rows = 40
	var mu sync.Mutex
	var emails []email
	ses, err := environment.NewSES(0, func(body []byte) {
		var e email
		if err := json.Unmarshal(body, &e); err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		emails = append(emails, e)
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ses.Close() }()
	loop, err := NewMailingLoop(ses.URL, 4)
	if err != nil {
		t.Fatal(err)
	}
	if rate, err := loop.Run(t.Context(), rows); err != nil || rate <= 0 {
		t.Fatalf("the rate is %v, %v", rate, err)
	}
	mu.Lock()
	defer mu.Unlock()
	seen := make(map[string]bool)
	for _, e := range emails {
		simple := e.Content.Simple
		if len(e.Destination.ToAddresses) != 1 || len(simple.Headers) != 2 {
			t.Fatalf("recipients %v, headers %v", e.Destination.ToAddresses, simple.Headers)
		}
		to, html := e.Destination.ToAddresses[0], simple.Body.HTML.Data
		if !strings.HasPrefix(to, "cliente0") || simple.Subject.Data != "Olá, "+load.SheetName+": sua fatura saiu" {
			t.Errorf("recipient %q, subject %q", to, simple.Subject.Data)
		}
		for _, value := range []string{load.SheetName, load.SheetCity, "fatura-" + strings.TrimPrefix(strings.TrimSuffix(to, "@cliente.example"), "cliente"), "/u/"} {
			if !strings.Contains(html, value) {
				t.Errorf("the html does not contain %q", value)
			}
		}
		if strings.Contains(html, "{{") || strings.Contains(html, environment.Placeholder) {
			t.Error("the html contains a field that was not rendered")
		}
		if err := htmlcheck.Check(html); err != nil {
			t.Errorf("the html is refused: %v", err)
		}
		link := simple.Headers[0].Value + simple.Headers[1].Value
		if seen[to] || seen[link] {
			t.Errorf("%q or its link is not unique", to)
		}
		seen[to], seen[link] = true, true
	}
	if len(emails) != rows {
		t.Errorf("SES received %d emails, want %d", len(emails), rows)
	}
}
