package httpapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// Emails made from templates may have 10 MiB of content together: small items must not fill the memory.
func TestBatch_ContentFromTemplates(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	r := g.do(t, call{Method: http.MethodPost, Path: "/v1/templates", Body: fmt.Sprintf(`{"name": "large", "subject": "s", "text": %q, "publish": true}`,
		strings.Repeat("word\n", 100_000))})
	if r.Status != http.StatusCreated {
		t.Fatalf("%d %.300s", r.Status, r.Body)
	}
	items := func(n int) string {
		all := make([]string, n)
		for i := range all {
			all[i] = fmt.Sprintf(`{"to": "p%d@example.com", "recipient": {"externalId": "c-%d"}, "template": {"name": "large"}}`, i, i)
		}
		return batchBody(all...)
	}
	for _, query := range []string{"", "?mode=partial"} {
		if r := g.batch(t, query, "", items(21)); r.Status != http.StatusRequestEntityTooLarge || r.problem(t).Code != "BODY_TOO_LARGE" {
			t.Errorf("21 emails of 500 KB%s: %d %.300s", query, r.Status, r.Body)
		}
	}
	if b := g.batch(t, "", "", items(20)).batch(t); b.Accepted != 20 {
		t.Errorf("20 emails of 500 KB: %+v", b)
	}
}
