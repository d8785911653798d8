package sessim_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"email-gateway/scripts/sessim"
)

// BenchmarkSend measures the simulator without a network: its overhead per call in a benchmark of
// the worker, in addition to net/http.
func BenchmarkSend(b *testing.B) {
	for _, size := range []int{200, 5000} {
		b.Run(fmt.Sprintf("html=%d", size), func(b *testing.B) {
			sim := sessim.New(sessim.Config{})
			html := strings.Repeat("<p>Olá, José</p>\\n", size/18)
			text := `{"FromEmailAddress":"no-reply@example.com","Destination":{"ToAddresses":["ana@example.com"]},` +
				`"Content":{"Simple":{"Subject":{"Data":"Olá","Charset":"UTF-8"},"Body":{"Html":{"Data":"` + html + `","Charset":"UTF-8"}}}},` +
				`"EmailTags":[{"Name":"outbox_id","Value":"%d"},{"Name":"attempt_id","Value":"0198c0de-0000-7000-8000-000000000000"}]}`
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				r := httptest.NewRequest(http.MethodPost, "/v2/email/outbound-emails", strings.NewReader(fmt.Sprintf(text, i)))
				r.Header.Set("Authorization", "AWS4-HMAC-SHA256 x")
				w := httptest.NewRecorder()
				if sim.ServeHTTP(w, r); w.Code != http.StatusOK {
					b.Fatal(w.Body)
				}
			}
		})
	}
}
