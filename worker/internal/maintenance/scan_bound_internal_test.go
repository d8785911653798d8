package maintenance

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A scan begins a minute before the earliest deadline found last, and without a bound after a pause in proportion to
// the duration of the last such scan.
func TestScanBound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b scanBound
		begin, failure := time.Now(), errors.New("canceling statement due to statement timeout")
		at := func(after time.Duration) time.Time { return begin.Add(24*time.Hour + after) }
		none := time.Time{}
		for _, step := range []struct {
			name  string
			took  time.Duration
			finds time.Time
			fails error
			want  time.Time // the bound
			skip  bool
		}{
			{"the first scan", time.Second, none, nil, none, false},
			{"before the next scan without a bound is due", 0, none, nil, none, true},
			{"when it is due", time.Second, at(0), nil, none, false},
			{"with a bound", 0, at(time.Second), nil, at(-boundMargin), false},
			{"with a later bound", 0, at(0), nil, at(time.Second - boundMargin), false},
			{"with an earlier bound", 0, none, nil, at(-boundMargin), false},
			{"ten seconds later", 0, none, nil, at(-boundMargin), false},
			{"after ten seconds in which none was found", 0, none, nil, at(10*time.Second - boundMargin), false},
			{"without a bound again, with an error", 30 * time.Second, none, failure, none, false},
			{"after an error", 0, at(time.Minute), nil, at(10*time.Second - boundMargin), false},
		} {
			switch step.name {
			case "when it is due", "without a bound again, with an error":
				<-time.After(time.Until(b.full))
			case "ten seconds later":
				<-time.After(10*time.Second - time.Since(b.scanned))
			}
			var got *time.Time
			err := b.scan(func(since time.Time) (time.Time, error) {
				got = &since
				<-time.After(step.took)
				return step.finds, step.fails
			})
			if !errors.Is(err, step.fails) || (got == nil) != step.skip || got != nil && !got.Equal(step.want) {
				t.Errorf("%s: from %v on, want %v, %v", step.name, got, step.want, err)
			}
		}
		if pause := time.Until(b.full); pause != maxFullScanPause {
			t.Errorf("the pause after a scan of 30 s is %s", pause)
		}
	})
}
