package draft_test

import (
	"testing"
	"time"

	"email-gateway/shared/draft"
	"email-gateway/shared/rules"
)

// The clock of an api's host may be ahead: whether a time of the last day has passed is decided by Postgres.
func TestDue(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, c := range map[string]struct {
		at   time.Time
		kept bool
	}{
		"in a minute":    {now.Add(time.Minute), true},
		"50 minutes ago": {now.Add(-50 * time.Minute), true},
		"two days ago":   {now.Add(-48 * time.Hour), false},
		"never given":    {time.Time{}, false},
	} {
		var faults rules.Faults
		if due := draft.Due(c.at, now, &faults); due.IsZero() == c.kept || c.kept && !due.Equal(c.at) || len(faults) > 0 {
			t.Errorf("%s: %v, %v", name, due, faults)
		}
	}
}
