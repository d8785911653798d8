package store_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/storetest"
)

// twoKilobytes is a body with about as many quotes and tags as real ones have.
var twoKilobytes = strings.Repeat(`<p style="margin:0">Olá, sua fatura chegou e vence na sexta-feira.</p>`+"\n", 28)

// BenchmarkAccept measures emails per second from callers that each wait for
// their own commit.
func BenchmarkAccept(b *testing.B) {
	for _, callers := range []int{1, 64, 256} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			d := storetest.New(b)
			company := d.Company(b)
			accepter := d.Store.NewAccepter()
			b.ResetTimer()
			share(b, callers, func(int) error {
				return accepter.Accept(b.Context(), storetest.NewEmail(company, func(e *outbox.NewEmail) { e.HTML = twoKilobytes }))
			})
		})
	}
}

// BenchmarkAccept_Scheduled measures what the logs of scheduled emails cost the groups that they
// are in. Groups without any run the same statement as ever.
func BenchmarkAccept_Scheduled(b *testing.B) {
	for _, share100 := range []int{0, 1, 100} {
		b.Run(fmt.Sprintf("percent=%d", share100), func(b *testing.B) {
			d := storetest.New(b)
			company := d.Company(b)
			accepter := d.Store.NewAccepter()
			later := time.Now().Add(48 * time.Hour)
			b.ResetTimer()
			share(b, 64, func(i int) error {
				return accepter.Accept(b.Context(), storetest.NewEmail(company, func(e *outbox.NewEmail) {
					if e.HTML = twoKilobytes; i%100 < share100 {
						e.SendAt = later
					}
				}))
			})
		})
	}
}

// BenchmarkAttempt measures the two writes of an email that is sent at the first
// try: the claim and the end.
func BenchmarkAttempt(b *testing.B) {
	d := storetest.New(b)
	company := d.Company(b)
	ids := make([]uuid.UUID, b.N)
	accepter := d.Store.NewAccepter()
	share(b, 256, func(i int) error {
		e := storetest.NewEmail(company, func(e *outbox.NewEmail) { e.HTML = twoKilobytes })
		ids[i] = e.ID
		return accepter.Accept(b.Context(), e)
	})
	advancer := d.Store.NewAdvancer()
	b.ResetTimer()
	share(b, 64, func(i int) error {
		token := uuid.New()
		for _, t := range []outbox.Transition{storetest.ClaimOf(company, ids[i], token, fmt.Sprint("CUST-", i)), storetest.SentOf(ids[i], token)} {
			done, err := advancer.Advance(b.Context(), t)
			if err == nil && !done.Applied {
				err = fmt.Errorf("not applied: %+v", done)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// share spreads b.N calls of do over so many goroutines and reports calls per second.
func share(b *testing.B, callers int, do func(i int) error) {
	b.Helper()
	var next atomic.Int64
	var wg sync.WaitGroup
	start := time.Now()
	for range callers {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(b.N); i = next.Add(1) - 1 {
				if err := do(int(i)); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/time.Since(start).Seconds(), "emails/s")
}
