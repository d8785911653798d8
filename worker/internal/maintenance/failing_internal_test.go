package maintenance

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/shared/store/retention"
)

// The metric says for how long the rounds of a kind have failed, also if another batch of these rounds deletes rows.
func TestCleaner_Failing(t *testing.T) {
	t.Parallel()
	deletes := func(context.Context) (retention.Cleaned, error) { return retention.Cleaned{Count: 1}, nil }
	fails := func(context.Context) (retention.Cleaned, error) {
		return retention.Cleaned{}, errors.New("access denied")
	}
	for name, tt := range map[string]struct {
		batches func(begin time.Time) []batch
		want    time.Duration
	}{
		"deletes":         {func(time.Time) []batch { return []batch{deletes} }, 0},
		"nothing to do":   {func(time.Time) []batch { return nil }, 0},
		"fails":           {func(time.Time) []batch { return []batch{fails} }, 3 * time.Hour},
		"one batch fails": {func(time.Time) []batch { return []batch{fails, deletes} }, 3 * time.Hour},
		"failed before": {func(begin time.Time) []batch {
			if time.Since(begin) < 2*time.Hour {
				return []batch{fails}
			}
			return []batch{deletes}
		}, 0},
		"fails again": {func(begin time.Time) []batch {
			if time.Since(begin) < time.Hour {
				return []batch{deletes}
			}
			return []batch{fails}
		}, 2 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				c := newCleaner(slog.New(slog.DiscardHandler), NewActions(prometheus.NewRegistry()), cleanInterval, kind{
					"files", fileExpired, func(context.Context) ([]batch, error) { return tt.batches(begin), nil },
				}, nil)
				if err := c.Start(t.Context(), nil); err != nil {
					t.Fatal(err)
				}
				<-time.After(3*time.Hour + time.Second)
				if got := time.Duration(c.failing.seconds()) * time.Second; got.Round(time.Minute) != tt.want {
					t.Errorf("failing for %s, want %s", got, tt.want)
				}
				if err := c.Stop(t.Context()); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}
