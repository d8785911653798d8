package reputation

import "testing"

// A rule with enough events is evaluated again without new feedback: the rate changes when more emails are sent, and when earlier
// ones leave the window.
func TestEvaluate_Near(t *testing.T) {
	t.Parallel()
	rules := map[Rule]Thresholds{}
	for _, r := range Rules() {
		rules[r] = Thresholds{Warn: wholeRate / 20, Pause: wholeRate / 10, MinSent: 200, MinEvents: 20}
	}
	for name, tt := range map[string]struct {
		measured    Measure
		near, pause bool
	}{
		"few events":                 {Measure{Sent: 300, Events: 19}, false, false},
		"many good emails before":    {Measure{Sent: 10_300, Events: 25}, true, false},
		"too few emails":             {Measure{Sent: 100, Events: 25}, true, false},
		"between the two thresholds": {Measure{Sent: 300, Events: 20}, true, false},
		"paused":                     {Measure{Sent: 200, Events: 20}, false, true},
	} {
		rule := Rules()[0]
		if e := evaluate(rules, map[Rule]Measure{rule: tt.measured}); e.near != tt.near || (e.pause != nil) != tt.pause {
			t.Errorf("%s: %+v", name, e)
		}
	}
}
