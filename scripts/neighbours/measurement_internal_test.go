package neighbours

import (
	"strings"
	"testing"
	"time"
)

func TestFigures(t *testing.T) {
	t.Parallel()
	times := make([]time.Duration, 200)
	for i := range times {
		times[i] = time.Duration(200-i) * time.Millisecond
	}
	f := figures(times, nil)
	if f.Count != 200 || f.P50 != 100 || f.P90 != 180 || f.P99 != 198 || f.Max != 200 {
		t.Errorf("%+v", f)
	}
	// Refused requests count with the client's timeout.
	if f := figures(times, map[int]int{503: 3}); f.Count != 203 || f.P99 != milliseconds(requestTimeout) {
		t.Errorf("%+v", f)
	}
	if f := figures(nil, nil); f.Count != 0 {
		t.Errorf("%+v", f)
	}
}

func TestRow_Evaluate(t *testing.T) {
	t.Parallel()
	idle := Measurement{Requests: map[string]Figures{"send": {P99: 20}, "list": {P99: 30}}, Sending: Figures{P99: 40}}
	for name, tt := range map[string]struct {
		seen     Measurement
		windows  int
		misuse   map[string]int
		missed   string // part of the only complaint; "" = none
		moonshot bool
	}{
		"at the limits":     {Measurement{Requests: map[string]Figures{"send": {P99: 520}, "list": {P99: 530}}, Sending: Figures{P99: 1250}}, 1, map[string]int{"202": 1}, "", false},
		"the moonshot":      {Measurement{Requests: map[string]Figures{"send": {P99: 220}, "list": {P99: 10}}, Sending: Figures{P99: 950}}, 1, map[string]int{"202": 1}, "", true},
		"a slow request":    {Measurement{Requests: map[string]Figures{"send": {P99: 20}, "list": {P99: 531}}, Sending: Figures{P99: 40}}, 1, map[string]int{"202": 1}, "list", false},
		"a refused request": {Measurement{Requests: map[string]Figures{"send": {P99: 20, Refused: map[int]int{503: 1}}}, Sending: Figures{P99: 40}}, 1, map[string]int{"202": 1}, "1 × 503", false},
		"a slow email":      {Measurement{Requests: map[string]Figures{"send": {P99: 20}}, Sending: Figures{P99: 1251}}, 1, map[string]int{"202": 1}, "accept→SES", false},
		"two windows":       {Measurement{Requests: map[string]Figures{"send": {P99: 20}}, Sending: Figures{P99: 2000}}, 2, map[string]int{"202": 1}, "", false},
		"no misuse":         {Measurement{Requests: map[string]Figures{"send": {P99: 20}}, Sending: Figures{P99: 40}}, 1, nil, "nothing", false},
	} {
		row := Row{Seen: tt.seen, Windows: tt.windows, Misuse: tt.misuse}
		row.evaluate(idle)
		complaint := strings.Join(row.Missed, "; ")
		if (complaint == "") != (tt.missed == "") || !strings.Contains(complaint, tt.missed) || len(row.Missed) > 1 || row.Moonshot != tt.moonshot {
			t.Errorf("%s: %q, moonshot %v", name, complaint, row.Moonshot)
		}
	}
}

// Resources have unique names, which --only accepts, and a description.
func TestChoose(t *testing.T) {
	t.Parallel()
	seen := make(map[string]bool)
	for _, r := range resources() {
		if r.name == "" || r.what == "" || r.misuse == nil || seen[r.name] {
			t.Errorf("%+v", r.name)
		}
		seen[r.name] = true
	}
	if chosen, err := choose("", true); err != nil || len(chosen) < 3 || len(chosen) == len(seen) {
		t.Errorf("%d in the short run, %v", len(chosen), err)
	}
	if chosen, err := choose("searches, priority-1", false); err != nil || len(chosen) != 2 || chosen[1].name != "priority-1" {
		t.Errorf("%v", err)
	}
	if _, err := choose("nothing", false); err == nil {
		t.Error("a resource that does not exist was chosen")
	}
}
