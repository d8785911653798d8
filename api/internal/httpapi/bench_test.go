package httpapi_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

// BenchmarkSend accepts emails from 64 concurrent clients over HTTP, with all features enabled: key,
// validation, HTML check, Idempotency-Key, commit. Clients and Postgres run on the same machine.
func BenchmarkSend(b *testing.B) {
	g := start(b, nil)
	body := emailBody(with("html", `<html><body>`+strings.Repeat(`<p style="color:#333">Olá <b>Ana</b>, sua fatura chegou.</p>`, 25)+`</body></html>`))
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	var n atomic.Int64
	b.SetParallelism(32) // times two cores
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			request, err := http.NewRequest(http.MethodPost, g.URL+"/v1/email/send", strings.NewReader(body))
			if err != nil {
				b.Fatal(err)
			}
			request.Header.Set("Content-Type", "application/json")
			request.Header.Set("Authorization", "Bearer "+g.Key.String())
			request.Header.Set("Idempotency-Key", fmt.Sprint("bench-", n.Add(1)))
			response, err := client.Do(request)
			if err != nil {
				b.Fatal(err)
			}
			text, err := io.ReadAll(response.Body)
			if err != nil || response.StatusCode != http.StatusAccepted {
				b.Fatalf("%d %s %v", response.StatusCode, text, err)
			}
			response.Body.Close()
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "emails/s")
}
