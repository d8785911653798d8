package inflight

import (
	"math"
	"testing"
	"time"
)

// world simulates a provider with a latency, and a machine with a maximum throughput.
type world struct {
	rate     float64
	latency  time.Duration
	capacity float64 // 0 = unbounded
}

// at is what a worker measures while tasks are ready.
func (w world) at(limit int) sample {
	sent := float64(limit) / w.latency.Seconds()
	if w.capacity > 0 {
		sent = min(sent, w.capacity)
	}
	full := sent < w.rate
	sent = min(sent, w.rate)
	latency := w.latency
	if full {
		latency = time.Duration(float64(limit) / sent * float64(time.Second)) // Little's law
	}
	return sample{rate: w.rate, latency: latency, sent: sent, atLimit: full}
}

func start(limit int) rule { return rule{min: 10, max: 512, limit: limit} }

func (r rule) after(rounds int, s func(limit int) sample) rule {
	for range rounds {
		r = r.next(s(r.limit))
	}
	return r
}

func TestRule_ReachesTheRate(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		world       world
		least, most int // of the limit
	}{
		"500/s at 100 ms":              {world{500, 100 * time.Millisecond, 0}, 50, 79},
		"a third of 500/s at 100 ms":   {world{500.0 / 3, 100 * time.Millisecond, 0}, 17, 30},
		"14/s at 50 ms":                {world{14, 50 * time.Millisecond, 0}, 10, 10},
		"14/s at 20 s":                 {world{14, 20 * time.Second, 0}, 280, 424},
		"1 per second":                 {world{1, 50 * time.Millisecond, 0}, 10, 10},
		"5,000/s at 1 s":               {world{5000, time.Second, 0}, 512, 512},
		"more than the machine can do": {world{5000, 5 * time.Millisecond, 2000}, 10, 160},
		"much more, at 50 ms":          {world{1e6, 50 * time.Millisecond, 2000}, 100, 160},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := start(10).after(8, tt.world.at)
			if r.limit < tt.least || r.limit > tt.most {
				t.Errorf("limit %d after 8 rounds, want %d to %d", r.limit, tt.least, tt.most)
			}
			// It stays there, except for occasional trials.
			most := 0
			r.after(10*restRounds, func(limit int) sample { most = max(most, limit); return tt.world.at(limit) })
			if most > growth*tt.most {
				t.Errorf("limit %d later, want at most %d", most, tt.most)
			}
		})
	}
}

// A step up without gain is reverted, and not tried again at once.
func TestRule_RevertsStepWithoutGain(t *testing.T) {
	t.Parallel()
	slow := world{1e6, 50 * time.Millisecond, 200} // ten in flight are enough
	r := start(10).next(slow.at(10))
	if r.limit != 40 {
		t.Fatalf("limit %d, want a trial of 40", r.limit)
	}
	r = r.next(slow.at(r.limit))
	if r.limit != 10 {
		t.Fatalf("limit %d after the trial, want 10", r.limit)
	}
	if r = r.after(restRounds-1, slow.at); r.limit != 10 {
		t.Errorf("limit %d, want no trial so soon", r.limit)
	}
	if r = r.after(1, slow.at); r.limit != 40 {
		t.Errorf("limit %d, want another trial", r.limit)
	}
}

// A provider that becomes slower during a trial does not cause a pause.
func TestRule_RetriesWhenProviderChanged(t *testing.T) {
	t.Parallel()
	fast, slow := world{1000, 100 * time.Millisecond, 0}, world{1000, 10 * time.Second, 0}
	r := start(10).next(fast.at(10))
	if r = r.next(slow.at(r.limit)); r.limit != 10 || r.rest != 0 {
		t.Fatalf("%+v, want the limit at 10 and no rest", r)
	}
	if r = r.after(6, slow.at); r.limit != 512 {
		t.Errorf("limit %d, want 512", r.limit)
	}
}

// Without enough tasks a step up is inconclusive, and is kept.
func TestRule_KeepsUnusedStep(t *testing.T) {
	t.Parallel()
	r := start(10).next(sample{rate: 500, latency: 100 * time.Millisecond, sent: 100, atLimit: true})
	r = r.next(sample{rate: 500, latency: 100 * time.Millisecond, sent: 60})
	if r.limit != 40 || r.rest != 0 {
		t.Errorf("%+v, want the limit at 40", r)
	}
}

func TestRule_Shrinks(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		limit  int
		sample sample
		want   int // after one round
		end    int // after a thousand
	}{
		"the latency fell":         {512, sample{rate: 500, latency: 100 * time.Millisecond, sent: 500}, 504, 79},
		"the rate fell":            {79, sample{rate: 14, latency: 100 * time.Millisecond, sent: 14}, 78, 10},
		"nothing was sent":         {79, sample{rate: 500}, 79, 79},
		"all calls hang":           {79, sample{rate: 500, atLimit: true}, 79, 79},
		"nothing changed":          {79, sample{rate: 500, latency: 100 * time.Millisecond, sent: 500}, 79, 79},
		"an absurd rate":           {10, sample{rate: math.MaxFloat64, latency: time.Hour}, 10, 10},
		"at the limit, but enough": {79, sample{rate: 500, latency: 100 * time.Millisecond, sent: 500, atLimit: true}, 79, 79},
		"slow and below the limit": {79, sample{rate: 500, latency: 30 * time.Second, sent: 2}, 79, 79},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := start(tt.limit).next(tt.sample)
			if r.limit != tt.want {
				t.Errorf("limit %d, want %d", r.limit, tt.want)
			}
			if r = r.after(1000, func(int) sample { return tt.sample }); r.limit != tt.end {
				t.Errorf("limit %d in the end, want %d", r.limit, tt.end)
			}
		})
	}
}
