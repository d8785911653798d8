package httpapi_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// BenchmarkSend accepts emails from 64 concurrent clients over HTTP, with all features enabled: key,
// validation, HTML check, Idempotency-Key, commit. Clients and Postgres run on the same machine.
func BenchmarkSend(b *testing.B) {
	send := sender(start(b, nil))
	b.SetParallelism(32) // times two cores
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := send(); err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "emails/s")
}

// BenchmarkSend_Quotas compares BenchmarkSend's requests with and without the trigger that counts
// emails toward quotas, in turns of a second, so that other load affects both. It reports the ratio
// of the medians, which should be at least 0.97. The check itself reads memory only: the company is
// far from its quotas.
func BenchmarkSend_Quotas(b *testing.B) {
	g := start(b, nil)
	send := sender(g)
	turn := func(trigger string) float64 {
		if _, err := g.SQL.ExecContext(b.Context(), `ALTER TABLE email_outbox `+trigger+` TRIGGER email_outbox_count_added`); err != nil {
			b.Fatal(err)
		}
		run := func(length time.Duration) float64 {
			ctx, cancel := context.WithTimeout(b.Context(), length)
			defer cancel()
			var accepted atomic.Int64
			var clients sync.WaitGroup
			for range 64 {
				clients.Go(func() {
					for ctx.Err() == nil {
						if err := send(); err != nil {
							b.Error(err)
							return
						}
						accepted.Add(1)
					}
				})
			}
			clients.Wait()
			return float64(accepted.Load())
		}
		run(200 * time.Millisecond) // Postgres plans the statements again
		return run(time.Second)
	}
	var with, without []float64
	for b.Loop() {
		without = append(without, turn("DISABLE"))
		with = append(with, turn("ENABLE"))
		if _, err := g.Store.FoldQuotas(b.Context(), 1000, true); err != nil {
			b.Fatal(err)
		}
	}
	median := func(all []float64) float64 { slices.Sort(all); return all[len(all)/2] }
	b.ReportMetric(median(with), "emails/s")
	b.ReportMetric(median(with)/median(without), "ratio")
}

// sender returns a function that sends one email, for concurrent use.
func sender(g *gateway) func() error {
	body := emailBody(with("html", `<html><body>`+strings.Repeat(`<p style="color:#333">Olá <b>Ana</b>, sua fatura chegou.</p>`, 25)+`</body></html>`))
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	var n atomic.Int64
	return func() error {
		request, err := http.NewRequest(http.MethodPost, g.URL+"/v1/email/send", strings.NewReader(body))
		if err != nil {
			return err
		}
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Authorization", "Bearer "+g.Key.String())
		request.Header.Set("Idempotency-Key", fmt.Sprint("bench-", n.Add(1)))
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode != http.StatusAccepted {
			return fmt.Errorf("%d %s %w", response.StatusCode, text, err)
		}
		return nil
	}
}
