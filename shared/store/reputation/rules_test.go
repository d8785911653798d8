package reputation_test

import (
	"testing"

	"email-gateway/shared/store/reputation"
)

func TestThresholds_Text(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]reputation.Thresholds{
		"0.5,1,200,5":        {Warn: 5000, Pause: 10_000, MinSent: 200, MinEvents: 5},
		"0.15, 0.3, 1000,10": {Warn: 1500, Pause: 3000, MinSent: 1000, MinEvents: 10},
		"100,100,1,1":        {Warn: 1_000_000, Pause: 1_000_000, MinSent: 1, MinEvents: 1},
		"0.0001,0.0001,1,1":  {Warn: 1, Pause: 1, MinSent: 1, MinEvents: 1},
	} {
		var got reputation.Thresholds
		if err := got.UnmarshalText([]byte(text)); err != nil || got != want {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
		var again reputation.Thresholds
		if err := again.UnmarshalText([]byte(got.String())); err != nil || again != want {
			t.Errorf("%q is written as %q: %v", text, got, err)
		}
	}
	for _, text := range []string{"", "1,2,3", "1,2,3,4,5", "2,1,200,5", "0,1,200,5", "1,101,200,5", "-1,1,200,5", "NaN,1,200,5", "0.00001,1,200,5", "0.5,1,0,5", "0.5,1,200,0", "0.5,1,2.5,5", "0.5,1,3000000000,5", "a,1,2,3"} {
		if err := new(reputation.Thresholds).UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}
