package load

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/uuid"
)

func TestRetryable(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		status int
		code   string
		want   bool
	}{
		{503, "UNAVAILABLE", true},
		{429, "RATE_LIMITED", true},
		{409, "IDEMPOTENCY_IN_PROGRESS", true},
		{409, "MAILING_BUSY", true},
		{500, "INTERNAL", true}, // reported, and the run continues
		{409, "FILENAME_EXISTS", false},
		{502, "", false},
		{422, "", false},
	} {
		if got := (response{status: tt.status, body: []byte(`{"code":"` + tt.code + `"}`)}).retryable(); got != tt.want {
			t.Errorf("%d %s: %v, want %v", tt.status, tt.code, got, tt.want)
		}
	}
}

// Responses that no fault may cause are reported: a 500, and that it is too late to cancel an email long before it is due.
func TestRefusals(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		answers []int // in turn
		due     time.Duration
		want    int // refusals
	}{
		"cancelled":            {[]int{200}, time.Hour, 0},
		"unavailable":          {[]int{503, 200}, 0, 0},
		"an internal error":    {[]int{500, 200}, 0, 1},
		"too late":             {[]int{409}, 0, 0},
		"too late, not due":    {[]int{409}, time.Hour, 1},
		"too late, nearly due": {[]int{409}, 10 * time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := 0
			api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(tt.answers[n])
				n++
				_, _ = w.Write([]byte(`{"code":"CANCEL_TOO_LATE"}`))
			}))
			t.Cleanup(api.Close)
			l := New(Params{APIs: []string{api.URL}})
			var next email
			next.content.SendAt = time.Now().Add(tt.due)
			l.withdraw(t.Context(), next, uuid.New())
			if got := l.Ledger.Records().Refused; len(got) != tt.want {
				t.Errorf("reported %q, want %d", got, tt.want)
			}
		})
	}
}
