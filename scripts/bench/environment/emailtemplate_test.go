package environment

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"testing"

	"email-gateway/shared/htmlcheck"
)

// Each copy is a whole request of the same length with its own key, whose body is JSON of about 2
// KB with its own recipient.
func TestEmailTemplate(t *testing.T) {
	t.Parallel()
	l, err := NewEmailTemplate()
	if err != nil {
		t.Fatal(err)
	}
	if n := l.Length(); n < 1800 || n > 2400 {
		t.Errorf("a request body has %d bytes", n)
	}
	write := l.Request("gw_test_key")
	seen := make(map[string]bool)
	for _, serial := range []int64{1, 42, 999_999_999_999} {
		request, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(write(nil, serial))))
		if err != nil {
			t.Fatal(err)
		}
		var body struct {
			To, HTML  string
			Recipient struct{ Email, ExternalID string }
		}
		text, err := io.ReadAll(request.Body)
		if err != nil || len(text) != l.Length() {
			t.Fatalf("a body of %d bytes, %v; want %d", len(text), err, l.Length())
		}
		if err := json.Unmarshal(text, &body); err != nil {
			t.Fatal(err)
		}
		key := request.Header.Get("Idempotency-Key")
		if seen[key] || seen[body.To] || body.Recipient.Email != body.To || key == "" {
			t.Errorf("the key %q or the address %q is not unique, or the recipient is %q", key, body.To, body.Recipient.Email)
		}
		seen[key], seen[body.To] = true, true
		if err := htmlcheck.Check(body.HTML); err != nil {
			t.Errorf("the html is refused: %v", err)
		}
	}
}
