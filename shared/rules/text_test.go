package rules_test

import (
	"strings"
	"testing"
	"time"

	"email-gateway/shared/rules"
)

func TestParseTime(t *testing.T) {
	t.Parallel()
	nine := time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"2026-03-01T09:00:00Z":           nine,
		"2026-03-01t09:00:00z":           nine,
		"2026-03-01t06:00:00-03:00":      nine,
		"2026-03-01T09:00:00.123456789z": nine.Add(123456789),
		"2026-03-01T09:00:59+00:00":      nine.Add(59 * time.Second),
	} {
		if got, err := rules.ParseTime(text); err != nil || !got.Equal(want) {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	const zone, leap = "such as 2026-03-01T09:00:00-03:00", "leap second"
	for text, want := range map[string]string{
		"":                              zone,
		"2026-03-01":                    zone,
		"2026-03-01T09:00:00":           zone,
		"2026-03-01 09:00:00Z":          zone,
		"2026-03-01T09:00:61Z":          zone,
		"2026-03-01T09:60:00Z":          zone,
		"2026-02-30T09:00:60Z":          zone,
		"2026-03-01T09:00:60":           zone,
		"2016-12-31T23:59:60Z":          leap,
		"2016-12-31t20:59:60.5-03:00":   leap,
		strings.Repeat("2", 17) + "60Z": zone,
	} {
		if got, err := rules.ParseTime(text); err == nil || !got.IsZero() || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
}
