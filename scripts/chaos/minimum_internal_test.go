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
