package checker

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/scripts/chaos/cluster"
	"email-gateway/scripts/chaos/fault"
	"email-gateway/scripts/chaos/load"
)

// quietEmails returns a checker for a run with emails of the quiet tenant, one per second from
// begun on, with the latencies that took returns.
func quietEmails(n int, start time.Time, injected []fault.Injected, took func(i int) time.Duration) *Checker {
	records := load.Records{Emails: make(map[int]load.Accepted)}
	c := New(nil, records, injected)
	for i := range n {
		at := start.Add(time.Duration(i) * time.Second).Truncate(time.Millisecond)
		id := idAt(at, i)
		records.Emails[load.QuietSerials+i] = load.Accepted{Serial: load.QuietSerials + i, ID: id}
		c.first[id.String()] = at.Add(took(i))
	}
	return c
}

// idAt returns a UUIDv7 of that time.
func idAt(at time.Time, n int) uuid.UUID {
	var id uuid.UUID
	for i := range 6 {
		id[i] = byte(at.UnixMilli() >> (40 - 8*i))
	}
	id[6], id[8], id[15] = 0x70, 0x80, byte(n)
	return id
}

func TestCheckQuiet(t *testing.T) {
	t.Parallel()
	start := time.Now()
	hit := func(kind, subject string, from, to int) []fault.Injected {
		return []fault.Injected{{Kind: kind, Subject: subject, From: start.Add(time.Duration(from) * time.Second), To: start.Add(time.Duration(to) * time.Second)}}
	}
	slow := func(from, to int) func(int) time.Duration {
		return func(i int) time.Duration {
			if i >= from && i < to {
				return 2 * quietBound
			}
			return 20 * time.Millisecond
		}
	}
	for name, tt := range map[string]struct {
		injected []fault.Injected
		took     func(int) time.Duration
		measured int
		want     []string
	}{
		"fast":                          {nil, slow(0, 0), 100, nil},
		"one of a hundred":              {nil, slow(50, 51), 100, nil},
		"two of a hundred":              {nil, slow(50, 52), 100, []string{Slow}},
		"slow during a fault":           {hit("redis-kill", "redis", 40, 45), slow(38, 54), 82, nil},
		"slow long after it":            {hit("redis-kill", "redis", 40, 45), slow(56, 60), 82, []string{Slow}},
		"slow while RabbitMQ is down":   {hit("rabbitmq-kill", "rabbitmq", 40, 45), slow(40, 45), 100, []string{Slow}},
		"slow while a worker is frozen": {hit("worker-freeze", "worker-1", 10, 80), slow(30, 60), 74, []string{Slow}},
		"slow when a worker is frozen":  {hit("worker-freeze", "worker-1", 10, 80), slow(10, 15), 74, nil},
		"slow when a worker resumes":    {hit("worker-freeze", "worker-1", 10, 80), slow(80, 85), 74, nil},
		"too slow before a fault":       {hit("redis-kill", "redis", 45, 46), slow(39, 41), 86, []string{Slow}},
		"too few emails":                {hit("redis-kill", "redis", 10, 60), slow(71, 100), 37, nil},
		"a fault during the whole run":  {hit("redis-pause", "redis", 0, 100), slow(0, 100), 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := quietEmails(100, start, tt.injected, tt.took)
			c.checkQuiet()
			if got := promises(c.Findings); !slices.Equal(got, tt.want) {
				t.Errorf("found %q, want %q", got, tt.want)
			}
			if q := c.Counts.Quiet; q.Accepted != 100 || q.Measured != tt.measured {
				t.Errorf("%+v, want %d measured", q, tt.measured)
			}
		})
	}
}

// On a machine with a quarter of the send rate an email waits for longer than the margin before a
// fault. The delay by the fault does not count.
func TestCheckQuiet_MeetsAFault(t *testing.T) {
	t.Parallel()
	start := time.Now()
	down, up := start.Add(44*time.Second), start.Add(47*time.Second)
	injected := []fault.Injected{{Kind: "redis-kill", Subject: "redis", From: down, To: up}}
	c := quietEmails(100, start, injected, func(i int) time.Duration {
		if i == 39 || i == 40 {
			return up.Sub(start.Add(time.Duration(i) * time.Second))
		}
		return 20 * time.Millisecond
	})
	for at := start; at.Before(start.Add(100 * time.Second)); at = at.Add(4 * time.Second / cluster.SendRate) {
		if at.Before(down) || at.After(up) {
			c.times = append(c.times, at)
		}
	}
	c.checkQuiet()
	if q := c.Counts.Quiet; len(promises(c.Findings)) != 0 || q.Measured != 82 {
		t.Errorf("found %q, %+v", promises(c.Findings), q)
	}
}

// On a slow machine the emails ahead count as at the send rate, but a pause counts in full.
func TestAtRate(t *testing.T) {
	t.Parallel()
	start := time.Now()
	every := func(pause time.Duration, n int) []time.Time {
		var times []time.Time
		for i := range n {
			times = append(times, start.Add(time.Duration(i)*pause))
		}
		return times
	}
	for name, tt := range map[string]struct {
		times      []time.Time
		wait, want time.Duration
	}{
		"at the rate":            {every(time.Second/cluster.SendRate, 5000), 2 * time.Second, 2 * time.Second},
		"a tenth of the rate":    {every(10*time.Second/cluster.SendRate, 5000), 10 * time.Second, time.Second + 10*time.Second/cluster.SendRate},
		"too many ahead":         {every(10*time.Second/cluster.SendRate, 5000), 40 * time.Second, 4*time.Second + 10*time.Second/cluster.SendRate},
		"nothing is sent":        {nil, 10 * time.Second, 10 * time.Second},
		"nothing is sent at all": {every(time.Millisecond, 100), 10 * time.Second, 10 * time.Second},
		"alone":                  {nil, 5 * time.Millisecond, 5 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := New(nil, load.Records{}, nil)
			c.times = tt.times
			ahead, pause := c.ahead(start, start.Add(tt.wait))
			if got := atRate(tt.wait, ahead, pause); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
		})
	}
}
