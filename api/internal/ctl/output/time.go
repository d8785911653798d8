package output

import (
	"fmt"
	"time"
)

// Timestamp formats a time to the second (UTC, as in the logs).
func Timestamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }

// TimestampMS formats a time to the millisecond (UTC, as in the logs).
func TimestampMS(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.000Z") }

// RelativeTime formats a time with its distance from now.
func RelativeTime(t, now time.Time) string {
	if d := t.Sub(now); d > 0 {
		return Timestamp(t) + " (in " + Duration(d) + ")"
	}
	return Timestamp(t) + " (" + Duration(now.Sub(t)) + " ago)"
}

// Duration formats a duration with at most two units.
func Duration(d time.Duration) string {
	units := func(big int, bigName string, small int, smallName string) string {
		if small == 0 {
			return fmt.Sprintf("%d %s", big, bigName)
		}
		return fmt.Sprintf("%d %s %d %s", big, bigName, small, smallName)
	}
	const day = 24 * time.Hour
	switch {
	case d < 0:
		return "-" + Duration(-d)
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Truncate(100*time.Millisecond).Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return units(int(d.Minutes()), "min", int(d.Seconds())%60, "s")
	case d < 2*day:
		return units(int(d.Hours()), "h", int(d.Minutes())%60, "min")
	default:
		return units(int(d/day), "d", int(d.Hours())%24, "h")
	}
}

// UTC returns the time in UTC, nil for nil.
func UTC(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	utc := t.UTC()
	return &utc
}
