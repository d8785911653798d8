//go:build crashpoints

package crashpoint

import "testing"

func TestParse(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		at, with string
		point    Point
		left     int64
		stop     bool
		fails    bool
	}{
		{at: ""},
		{at: "send/claimed", point: SendClaimed, left: 1},
		{at: "send/claimed:3", with: "KILL", point: SendClaimed, left: 3},
		{at: "send/claimed:3", with: "STOP", point: SendClaimed, left: 3, stop: true},
		{at: "send/nowhere", fails: true},
		{at: "send/claimed:0", fails: true},
		{at: "send/claimed:x", fails: true},
		{at: "send/claimed", with: "TERM", fails: true},
	} {
		got, err := parse(tt.at, tt.with)
		if (err != nil) != tt.fails {
			t.Errorf("%q %q: %v", tt.at, tt.with, err)
		}
		if err == nil && (got.point != tt.point || got.left.Load() != tt.left || got.stop != tt.stop) {
			t.Errorf("%q %q: %q, %d, %v", tt.at, tt.with, got.point, got.left.Load(), got.stop)
		}
	}
}
