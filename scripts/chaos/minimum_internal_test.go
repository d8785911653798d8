package chaos

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"email-gateway/scripts/chaos/fault"
)

func TestMinimumOf(t *testing.T) {
	t.Parallel()
	all := fault.Kinds()
	for name, tt := range map[string]struct {
		duration time.Duration
		kinds    []fault.Kind
		want     Minimum
	}{
		"the short run": {time.Minute, all, Minimum{Emails: 5000, Mailings: 2, Faults: 10, Kinds: 6}},
		"the long run":  {20 * time.Minute, all, Minimum{Emails: 200_000, Mailings: 20, Faults: 200, Kinds: 12, Kills: 10}},
		"between":       {10*time.Minute + 30*time.Second, all, Minimum{Emails: 102_500, Mailings: 11, Faults: 105, Kinds: 9, Kills: 5}},
		"shorter":       {30 * time.Second, all, Minimum{Emails: 2500, Mailings: 1, Faults: 5, Kinds: 3}},
		"two kinds":     {20 * time.Minute, all[:2], Minimum{Emails: 200_000, Mailings: 20, Faults: 200, Kinds: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tt.want, minimumOf(tt.duration, tt.kinds)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A slow machine needs fewer emails, a fast one no more than the target, and a system that hardly
// works always fails.
func TestMinimum_OnMachine(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		target           int
		rate             float64
		duration, outage time.Duration
		want             int
	}{
		"fast":                 {5000, 500, time.Minute, 0, 5000},
		"slow":                 {5000, 100, time.Minute, 0, 4200},
		"slow, with an outage": {5000, 100, time.Minute, 20 * time.Second, 2800},
		"hardly works":         {5000, 1, time.Minute, 0, 600},
		"only outages":         {5000, 190, time.Minute, time.Minute, 600},
		"12 slow minutes":      {117_894, 190, 12 * time.Minute, 100 * time.Second, 82_460},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := Minimum{Emails: tt.target, Mailings: 2, Faults: 10}
			want := m
			want.Emails = tt.want
			if diff := cmp.Diff(want, m.onMachine(tt.rate, tt.duration, tt.outage)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
