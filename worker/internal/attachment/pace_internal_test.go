package attachment

import (
	"testing"
	"time"

	"github.com/google/uuid"
)

// Many emails wait for one that takes 200 ms: they come back about as often as one can be sent, not all of them every second.
func TestPacing(t *testing.T) {
	t.Parallel()
	p, company, now := newPacing(), uuid.New(), time.Now()
	var due []time.Time
	for range 1000 {
		due = append(due, now.Add(p.delay(company, now)))
	}
	sent, tries := 0, 0
	for free := now; sent < len(due) && tries < 10_000; tries++ {
		next := 0
		for i := range due {
			if !due[i].IsZero() && (due[next].IsZero() || due[i].Before(due[next])) {
				next = i
			}
		}
		now = due[next]
		if now.Before(free) {
			due[next] = now.Add(p.delay(company, now))
			continue
		}
		free = now.Add(200 * time.Millisecond)
		p.start(company, now)(free)
		due[next] = time.Time{}
		sent++
	}
	if sent != len(due) {
		t.Fatalf("%d of %d emails are sent after %d tries", sent, len(due), tries)
	}
	if tries > 6*sent {
		t.Errorf("%d tries for %d emails", tries, sent)
	}
	t.Logf("%d tries for %d emails", tries, sent)
}

// One company's waiting emails do not delay those of another, and are forgotten when they have gone.
func TestPacing_Companies(t *testing.T) {
	t.Parallel()
	p, busy, now := newPacing(), uuid.New(), time.Now()
	for range 1000 {
		if d := p.delay(busy, now); d < minDelay || d > maxDelay {
			t.Fatalf("the delay is %v", d)
		}
	}
	if d := p.delay(uuid.New(), now); d != minDelay {
		t.Errorf("another company's email waits for %v", d)
	}
	p.delay(uuid.New(), now.Add(2*maxDelay))
	if n := len(p.companies); n != 1 {
		t.Errorf("the paces of %d companies are kept", n)
	}
}

// After slow emails, quick ones are not kept apart.
func TestPacing_Recovers(t *testing.T) {
	t.Parallel()
	p, company, now := newPacing(), uuid.New(), time.Now()
	for range 5 {
		done := p.start(company, now)
		now = now.Add(20 * time.Second)
		done(now)
	}
	for range 20 {
		p.delay(company, now)
		now = now.Add(8 * time.Second) // as far apart as the delays may be
		p.start(company, now)(now.Add(100 * time.Millisecond))
	}
	first := p.delay(company, now)
	if second := p.delay(company, now); second-first > time.Second {
		t.Errorf("waiting emails are %v apart", second-first)
	}
}
