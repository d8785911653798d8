package store_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/store/mailing"
	"email-gateway/shared/store/storetest"
)

// BenchmarkIngestMailing measures the lines per second of one upload, and what of it
// stays in memory at most. -benchtime 1000000x makes a file of a million lines.
func BenchmarkIngestMailing(b *testing.B) {
	for name, duplicates := range map[string]int{"plain": 0, "every 10th twice": 10, "every line twice": 2} {
		b.Run(name, func(b *testing.B) {
			d := storetest.New(b)
			company := d.Company(b)
			var peak uint64
			entry := storetest.NewEntry(1)
			entry.Fields = []string{"Recife", "R$ 12,30", "2026-01-01"}
			lines := func(yield func(mailing.Line, error) bool) {
				for i := range b.N {
					n := i
					if duplicates > 0 && i%duplicates == 1 {
						n = i - 1
					}
					entry.ID, entry.Line, entry.Email = uuid.Must(uuid.NewV7()), i+2, fmt.Sprintf("User.%d@Example%d.com", n*7919%1000003, n%50)
					if !yield(mailing.Line{Entry: entry}, nil) {
						return
					}
					if i%50000 == 0 {
						var m runtime.MemStats
						runtime.ReadMemStats(&m)
						peak = max(peak, m.HeapInuse)
					}
				}
			}
			start := time.Now()
			b.ResetTimer()
			if _, _, err := d.Store.IngestMailing(b.Context(), storetest.NewMailing(company, nil), lines); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(b.N)/time.Since(start).Seconds(), "rows/s")
			b.ReportMetric(float64(peak)/(1<<20), "MiB")
		})
	}
}
