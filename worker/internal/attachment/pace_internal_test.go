package attachment

import (
	"testing"
	"time"

	"github.com/google/uuid"
)

// Many emails wait for one that takes 200 ms: they come back about as often as one can be sent, not all of them every second.
func TestPacing(t *testing.T) {
	t.Parallel()
	p, company, now := newPacing(), lane{company: uuid.New()}, time.Now()
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

// The waiting emails of one lane do not delay those of another one, and are forgotten when they have gone.
func TestPacing_Lanes(t *testing.T) {
	t.Parallel()
	p, busy, now := newPacing(), lane{uuid.New(), "mailing"}, time.Now()
	for range 1000 {
		if d := p.delay(busy, now); d < minDelay || d > maxDelay {
			t.Fatalf("the delay is %v", d)
		}
	}
	for _, other := range []lane{{uuid.New(), "mailing"}, {busy.company, "urgent"}} {
		if d := p.delay(other, now); d != minDelay {
			t.Errorf("an email of another company or lane waits for %v", d)
		}
	}
	p.delay(lane{company: uuid.New()}, now.Add(2*maxDelay))
	if n := len(p.lanes); n != 1 {
		t.Errorf("the paces of %d lanes are kept", n)
	}
}

// Of 50,000 waiting emails about as many come back as can be sent: each one that comes back too early is dispatched and
// loaded for nothing.
func TestPacing_Backlog(t *testing.T) {
	t.Parallel()
	p, company, now := newPacing(), lane{company: uuid.New()}, time.Now()
	for range 10 {
		p.start(company, now)(now.Add(250 * time.Millisecond))
	}
	const waiting = 50_000
	soon := 0
	for range waiting {
		if p.delay(company, now) <= time.Minute {
			soon++
		}
	}
	if perSecond := soon / 60; perSecond > 10 { // 4 can be sent
		t.Errorf("%d emails come back in each second of the first minute", perSecond)
	}
}

// After slow emails, quick ones are not kept apart.
func TestPacing_Recovers(t *testing.T) {
	t.Parallel()
	p, company, now := newPacing(), lane{company: uuid.New()}, time.Now()
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
