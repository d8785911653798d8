package store_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"email-gateway/shared/store"
	"email-gateway/shared/store/storetest"
)

// BenchmarkAccept_Quotas accepts emails of 64 callers in turns of a second: with quotas, which
// are the triggers that count and the check before each email, and with neither. It reports the
// ratio of the medians, which is to be 0.97 at least. The company is far from its quotas. Other
// load on the machine meets both alike.
func BenchmarkAccept_Quotas(b *testing.B) {
	d := storetest.New(b)
	company := d.Company(b)
	a := d.Store.NewAccepter()
	defer a.Close()
	turn := func(quotas bool) float64 {
		store.CheckQuotas(d.Store, quotas)
		counting := "DISABLE"
		if quotas {
			counting = "ENABLE"
		}
		if _, err := d.SQL.ExecContext(b.Context(), `ALTER TABLE email_outbox `+counting+` TRIGGER email_outbox_count_added`); err != nil {
			b.Fatal(err)
		}
		run := func(length time.Duration) int64 {
			ctx, cancel := context.WithTimeout(b.Context(), length)
			defer cancel()
			var done atomic.Int64
			var callers sync.WaitGroup
			for range 64 {
				callers.Go(func() {
					for ctx.Err() == nil {
						if err := a.Accept(b.Context(), storetest.NewEmail(company, func(e *store.NewEmail) { e.HTML = twoKilobytes })); err != nil {
							b.Error(err)
							return
						}
						done.Add(1)
					}
				})
			}
			callers.Wait()
			return done.Load()
		}
		run(200 * time.Millisecond) // plans are made anew
		return float64(run(time.Second))
	}
	var with, without []float64
	for b.Loop() {
		without = append(without, turn(false))
		with = append(with, turn(true))
		if _, err := d.Store.FoldQuotas(b.Context(), 1000); err != nil {
			b.Fatal(err)
		}
	}
	median := func(all []float64) float64 { slices.Sort(all); return all[len(all)/2] }
	b.ReportMetric(median(with), "emails/s")
	b.ReportMetric(median(with)/median(without), "ratio")
}
