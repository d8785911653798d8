package maintenance

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"email-gateway/shared/blob"
	"email-gateway/shared/store/retention"
)

// The metric says for how long the rounds of a kind have failed, also if another batch of these rounds deletes rows.
func TestCleaner_Failing(t *testing.T) {
	t.Parallel()
	deletes := func(context.Context) (retention.Cleaned, error) { return retention.Cleaned{Count: 1}, nil }
	fails := func(context.Context) (retention.Cleaned, error) {
		return retention.Cleaned{}, errors.New("access denied")
	}
	panics := func(context.Context) (retention.Cleaned, error) { panic("index out of range") }
	for name, tt := range map[string]struct {
		batches func(begin time.Time) []batch
		want    time.Duration
	}{
		"deletes":         {func(time.Time) []batch { return []batch{deletes} }, 0},
		"nothing to do":   {func(time.Time) []batch { return nil }, 0},
		"fails":           {func(time.Time) []batch { return []batch{fails} }, 3 * time.Hour},
		"one batch fails": {func(time.Time) []batch { return []batch{fails, deletes} }, 3 * time.Hour},
		"panics":          {func(time.Time) []batch { return []batch{panics} }, 3 * time.Hour},
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
				if got := failingFor(c.failing); got.Round(time.Minute) != tt.want {
					t.Errorf("failing for %s, want %s", got, tt.want)
				}
				if err := c.Stop(t.Context()); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// A round of the sweeper that fails after a long search proves a failure only with the next one, hours later.
func TestOrphanSweeper_Failing(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		search, after, want time.Duration
	}{
		"one failed round": {30 * time.Minute, 10 * time.Hour, 0},
		"two":              {30 * time.Minute, 12 * time.Hour, 10*time.Hour + 30*time.Minute},
		"short rounds":     {time.Second, time.Hour, 50 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files, err := blob.Open(t.Context(), "file://"+t.TempDir(), blob.Options{})
			if err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) {
				s := NewOrphanSweeper(OrphanSweeperParams{
					Log: slog.New(slog.DiscardHandler), Blobs: slowFiles{files, tt.search}, Registry: prometheus.NewRegistry(),
				})
				if err := s.Start(t.Context(), nil); err != nil {
					t.Fatal(err)
				}
				<-time.After(tt.after)
				if got := failingFor(s.failing); got.Round(10*time.Minute) != tt.want {
					t.Errorf("failing for %s, want %s", got, tt.want)
				}
				if err := s.Stop(t.Context()); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// slowFiles is a storage whose lists fail after half the search.
type slowFiles struct {
	*blob.Bucket
	search time.Duration
}

func (f slowFiles) List(context.Context, string) iter.Seq2[blob.Object, error] {
	return func(yield func(blob.Object, error) bool) {
		<-time.After(f.search / 2)
		yield(blob.Object{}, errors.New("connection reset"))
	}
}

func failingFor(f *failing) time.Duration {
	return time.Duration(testutil.ToFloat64(f.seconds)) * time.Second
}
