package event_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/storetest"
)

// BenchmarkSend_Feed compares the writes of an email that is sent, its claim and its result, with
// and without the trigger that writes event_feed, in turns of a second, so that other load affects
// both. It reports the ratio of the medians, which should be at least 0.9: the writes are less than
// half of what sending an email costs all processes together, of which the feed may cost 5 %.
func BenchmarkSend_Feed(b *testing.B) {
	d := storetest.New(b)
	company := d.Company(b)
	accepter := d.Store.NewAccepter()
	defer accepter.Close()
	advancer := d.Store.NewAdvancer()
	const callers = 64
	ids := make(chan uuid.UUID, 100_000)
	fill := func() {
		var accepting sync.WaitGroup
		for range 256 {
			accepting.Go(func() {
				for len(ids) < 60_000 {
					e := storetest.NewEmail(company, nil)
					if err := accepter.Accept(b.Context(), e); err != nil {
						b.Error(err)
						return
					}
					ids <- e.ID
				}
			})
		}
		accepting.Wait()
	}
	turn := func(trigger string) float64 {
		if _, err := d.SQL.ExecContext(b.Context(), `ALTER TABLE email_events `+trigger+` TRIGGER email_events_feed`); err != nil {
			b.Fatal(err)
		}
		run := func(length time.Duration) float64 {
			ctx, cancel := context.WithTimeout(b.Context(), length)
			defer cancel()
			var sent atomic.Int64
			var workers sync.WaitGroup
			for range callers {
				workers.Go(func() {
					for ctx.Err() == nil {
						if err := send(b.Context(), advancer, <-ids); err != nil {
							b.Error(err)
							return
						}
						sent.Add(1)
					}
				})
			}
			workers.Wait()
			return float64(sent.Load())
		}
		run(200 * time.Millisecond) // Postgres plans the statements again
		return run(time.Second)
	}
	var with, without []float64
	for b.Loop() {
		fill()
		without = append(without, turn("DISABLE"))
		with = append(with, turn("ENABLE"))
	}
	median := func(all []float64) float64 { slices.Sort(all); return all[len(all)/2] }
	b.ReportMetric(median(with), "emails/s")
	b.ReportMetric(median(with)/median(without), "ratio")
}

// send claims an email and records that it was sent.
func send(ctx context.Context, advancer *outbox.Advancer, id uuid.UUID) error {
	token := uuid.New()
	for _, t := range []outbox.Transition{
		{ID: id, Guard: outbox.GuardClaim, Token: token, Status: email.Processing, AddAttempts: 1, Events: events(email.EventReceived, email.EventValidated, email.EventSentAttempt)},
		{ID: id, Guard: outbox.GuardAttempt, Token: token, Status: email.Sent, Events: events(email.EventSent), SESMessageID: "m-" + id.String()},
	} {
		done, err := advancer.Advance(ctx, t)
		if err == nil && !done.Applied {
			err = fmt.Errorf("not applied: %+v", done)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func events(types ...email.EventType) []email.Event {
	all := make([]email.Event, len(types))
	for i, kind := range types {
		all[i] = email.Event{Type: kind, At: time.Now().UTC()}
	}
	return all
}
