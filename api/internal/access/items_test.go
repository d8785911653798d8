package access_test

import (
	"testing"
	"testing/synctest"
	"time"

	"email-gateway/api/internal/access"
)

// A batch counts its items. One that is larger than a burst needs a full bucket and overdraws it.
func TestLimiter_Items(t *testing.T) {
	t.Parallel()
	const perSecond, burst = 2, 10
	for name, tt := range map[string]struct {
		before  int // other requests
		items   int
		allowed bool
		left    int
		reset   time.Duration
		retry   time.Duration // of the batch, or of the next single request
	}{
		"fits":                  {0, 10, true, 0, 5 * time.Second, 500 * time.Millisecond},
		"some fit":              {4, 6, true, 0, 5 * time.Second, 500 * time.Millisecond},
		"does not fit":          {4, 7, false, 5, 2500 * time.Millisecond, time.Second},
		"larger than a burst":   {0, 25, true, 0, 12500 * time.Millisecond, 8 * time.Second},
		"larger and not full":   {1, 25, false, 8, time.Second, time.Second},
		"one":                   {9, 1, true, 0, 5 * time.Second, 500 * time.Millisecond},
		"much larger":           {0, 500, true, 0, 250 * time.Second, 245500 * time.Millisecond},
		"one more than a burst": {0, 11, true, 0, 5500 * time.Millisecond, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := access.NewLimiter()
				for range tt.before + 1 {
					l.Take("k", perSecond, burst)
				}
				q := l.TakeItems("k", perSecond, burst, tt.items-1)
				if q.Allowed != tt.allowed || q.Limit != burst || q.Remaining != tt.left || q.Reset != tt.reset {
					t.Errorf("%+v", q)
				}
				retry := q.RetryAfter
				if q.Allowed {
					retry = l.Take("k", perSecond, burst).RetryAfter
				}
				if retry != tt.retry {
					t.Errorf("allowed after %v", retry)
				}
				<-time.After(retry)
				again := l.Take("k", perSecond, burst)
				if !q.Allowed {
					again = l.TakeItems("k", perSecond, burst, tt.items-1)
				}
				if !again.Allowed {
					t.Errorf("after Retry-After: %+v", again)
				}
			})
		})
	}
}

func TestLimiter_ItemsOff(t *testing.T) {
	t.Parallel()
	if q := access.NewLimiter().TakeItems("k", 0, 0, 499); !q.Allowed || q.Limit != 0 {
		t.Errorf("%+v", q)
	}
}
