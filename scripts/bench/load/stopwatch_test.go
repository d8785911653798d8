package load

import (
	"context"
	"math"
	"testing"
	"time"
)

func TestPercentile(t *testing.T) {
	t.Parallel()
	times := make([]time.Duration, 200)
	for i := range times {
		times[i] = time.Duration(i+1) * time.Millisecond
	}
	for p, want := range map[float64]float64{0: 1, 50: 100, 99: 198, 99.9: 200, 100: 200} {
		if got := Percentile(times, p); got != want {
			t.Errorf("p%v of 1 to 200 ms is %v, want %v", p, got, want)
		}
	}
	if got := Percentile(times[:1], 99); got != 1 {
		t.Errorf("p99 of one value is %v, want it", got)
	}
	if got := Percentile(nil, 50); !math.IsNaN(got) {
		t.Errorf("p50 of nothing is %v", got)
	}
}

// Each submitted email counts once, whatever other bodies arrive.
func TestStopwatch(t *testing.T) {
	t.Parallel()
	body := func(to string) []byte {
		return []byte(`{"Destination": {"ToAddresses": ["` + to + `"]}, "FromEmailAddress": "a@b.example"}`)
	}
	s := NewStopwatch()
	s.Leave("a@x.example")
	s.Leave("b@x.example")
	for _, to := range []string{"b@x.example", "stranger@x.example", "b@x.example", "a@x.example"} {
		s.Arrive(body(to))
	}
	s.Arrive([]byte("not JSON"))
	times, err := s.All(t.Context())
	if err != nil || len(times) != 2 || times[0] > times[1] {
		t.Errorf("times %v, %v; want two in their order", times, err)
	}
	if times, err := s.All(t.Context()); err != nil || len(times) != 0 {
		t.Errorf("the stopwatch was not reset: %v, %v", times, err)
	}

	s.Leave("lost@x.example")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := s.All(ctx); err == nil {
		t.Error("no error although an email did not arrive")
	}
}
