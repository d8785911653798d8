package email_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"email-gateway/shared/email"
	"email-gateway/shared/email/emailtest"
)

func TestDefaultBackoff_ContractTable(t *testing.T) {
	t.Parallel()
	want := []time.Duration{time.Second, 5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute, 10 * time.Minute, 10 * time.Minute}
	for i, wait := range want {
		// u = 0.5 is the middle of the jitter: the table's own value.
		if got := emailtest.Backoff().DelayAt(i+1, 0.5); got != wait {
			t.Errorf("after try %d: %s, want %s", i+1, got, wait)
		}
	}
}

// Ten thousand draws per try are within a quarter of the table's value, spread over the whole
// range, and their mean is the value.
func TestBackoff_JitterOfTenThousandDraws(t *testing.T) {
	t.Parallel()
	const draws = 10_000
	backoff := emailtest.Backoff()
	random := rand.New(rand.NewPCG(1, 2)) // seeded: the same draws in every run
	for n := 1; n <= 6; n++ {
		base := float64(backoff[min(n, len(backoff))-1])
		low, high, sum := math.Inf(1), 0.0, 0.0
		for range draws {
			wait := float64(backoff.DelayAt(n, random.Float64()))
			low, high, sum = min(low, wait), max(high, wait), sum+wait
		}
		if low < 0.75*base || high > 1.25*base {
			t.Errorf("after try %d: waits from %.0f to %.0f ns leave %.0f ±25 %%", n, low, high, base)
		}
		if low > 0.76*base || high < 1.24*base {
			t.Errorf("after try %d: waits from %.0f to %.0f ns do not use %.0f ±25 %%", n, low, high, base)
		}
		if mean := sum / draws; math.Abs(mean-base) > 0.01*base {
			t.Errorf("after try %d: mean wait %.0f ns, want %.0f", n, mean, base)
		}
	}
}

func TestBackoff_AnyTableAnyTry(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		table := rapid.SliceOfN(rapid.Int64Range(1, int64(24*time.Hour)), 1, 8).Draw(t, "table")
		backoff := make(email.Backoff, len(table))
		for i, d := range table {
			backoff[i] = time.Duration(d)
		}
		n := rapid.IntRange(-3, 1000).Draw(t, "try")
		u := rapid.Float64Range(0, math.Nextafter(1, 0)).Draw(t, "u")

		base := float64(table[min(max(n, 1), len(table))-1])
		wait := float64(backoff.DelayAt(n, u))
		// Truncation may cost a nanosecond.
		if wait < base*0.75-1 || wait > base*1.25 {
			t.Fatalf("Delay(%d, %v) = %v leaves %v ±25 %%", n, u, wait, base)
		}
		if later := float64(backoff.DelayAt(n, min(u+0.1, 1))); later < wait {
			t.Fatalf("a larger u waits shorter: %v < %v", later, wait)
		}
	})
}

func TestBackoff_UnmarshalText(t *testing.T) {
	t.Parallel()
	tests := []struct {
		text string
		want email.Backoff
		err  bool
	}{
		{text: "1s,5s,30s,2m,10m", want: emailtest.Backoff()},
		{text: " 250ms , 1m30s", want: email.Backoff{250 * time.Millisecond, 90 * time.Second}},
		{text: "1h", want: email.Backoff{time.Hour}},
		{text: "", err: true},
		{text: "1s,,2s", err: true},
		{text: "5", err: true},
		{text: "1s,0s", err: true},
		{text: "-1s", err: true},
	}
	for _, tt := range tests {
		t.Run(tt.text, func(t *testing.T) {
			t.Parallel()
			before := email.Backoff{time.Nanosecond}
			got := before
			err := got.UnmarshalText([]byte(tt.text))
			if (err != nil) != tt.err {
				t.Fatalf("error %v, want one: %v", err, tt.err)
			}
			want := tt.want
			if tt.err {
				want = before // a rejected text leaves the table unchanged
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// In a short outage the delays are short, in a long one they grow, so that a day of it costs few deliveries.
func TestBackoff_OutageDelay(t *testing.T) {
	t.Parallel()
	b := emailtest.Backoff()
	tries, waited := 1, time.Duration(0)
	for n := 1; waited < 24*time.Hour; n++ {
		d := b.OutageDelayAt(n, 0.5)
		if waited < 30*time.Minute && d > 2*time.Minute || d > max(waited, 2*time.Minute) || d > time.Hour {
			t.Errorf("after try %d and %s: %s", n, waited, d)
		}
		waited += d
		tries++
	}
	if tries > 50 {
		t.Errorf("%d tries in a day", tries)
	}
	if d := (email.Backoff{2 * time.Hour}).OutageDelayAt(99, 0.5); d != 2*time.Hour {
		t.Errorf("a table of two hours: %s", d)
	}
}
