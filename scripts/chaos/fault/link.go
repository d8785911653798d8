package fault

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"email-gateway/scripts/chaos/stage"
)

// linkKinds: what befalls the ways between the parts. "client" is the way from the
// tenants to the apis.
func linkKinds() []Kind {
	var kinds []Kind
	for _, way := range []struct {
		name, dependency string
		heal             time.Duration
	}{
		{"client", stage.API, healNews},
		{"postgres", stage.Postgres, healSoon},
		{"redis", stage.Redis, healTask},
		{"rabbitmq", stage.RabbitMQ, healJob},
		{"ses", stage.SES, healCall},
	} {
		subjects := append(stage.LinkNames(way.dependency), everyLink+way.dependency)
		for _, k := range []Kind{
			{Name: "delay", Weight: 2, Shortest: seconds(1), Longest: seconds(10), make: newDelay},
			{Name: "cut", Weight: 2, Shortest: seconds(0.1), Longest: seconds(8), make: newCut},
			{Name: "hang", Weight: 1, Shortest: seconds(1), Longest: seconds(8), make: newHang},
			{Name: "trickle", Weight: 1, Shortest: seconds(1), Longest: seconds(6), make: newTrickle},
			{Name: "snap", Weight: 2, Shortest: seconds(0.5), Longest: seconds(3), make: newSnap},
		} {
			k.Name, k.Heal, k.Subjects = way.name+"-"+k.Name, way.heal, subjects
			kinds = append(kinds, k)
		}
	}
	return kinds
}

// links are those that a subject means.
func links(s *stage.Stage, subject string) []*stage.Link {
	var some []*stage.Link
	for _, name := range parts(subject) {
		some = append(some, s.Link(name))
	}
	return some
}

// each works on all links at once.
func each(links []*stage.Link, work func(*stage.Link) error) error {
	errs := make([]error, len(links))
	var working sync.WaitGroup
	for i, l := range links {
		working.Go(func() { errs[i] = work(l) })
	}
	working.Wait()
	return errors.Join(errs...)
}

func poisoned(s *stage.Stage, subject string, toxics ...stage.Toxic) Fault {
	some := links(s, subject)
	return hooks{
		begin: func(ctx context.Context) error {
			return each(some, func(l *stage.Link) error { return l.Poison(ctx, toxics...) })
		},
		end: func(ctx context.Context) error {
			return each(some, func(l *stage.Link) error { return l.Cure(ctx) })
		},
	}
}

// newCut refuses and ends connections.
func newCut(s *stage.Stage, subject string, _ *rand.Rand) Fault {
	some := links(s, subject)
	return hooks{
		begin: func(ctx context.Context) error {
			return each(some, func(l *stage.Link) error { return l.Cut(ctx) })
		},
		end: func(ctx context.Context) error {
			return each(some, func(l *stage.Link) error { return l.Join(ctx) })
		},
	}
}

// newDelay makes answers late.
func newDelay(s *stage.Stage, subject string, dice *rand.Rand) Fault {
	latency := 20 + dice.IntN(400)
	return poisoned(s, subject, stage.Toxic{
		Type: "latency", Stream: "downstream", Attributes: map[string]any{"latency": latency, "jitter": latency / 2},
	})
}

// newHang leaves connections open and lets nothing through: what is sent meanwhile is
// lost, and each side finds out by itself.
func newHang(s *stage.Stage, subject string, dice *rand.Rand) Fault {
	// With only the answers lost the request is carried out.
	answers := stage.Toxic{Type: "timeout", Stream: "downstream", Attributes: map[string]any{"timeout": 0}}
	if dice.IntN(2) == 0 {
		return poisoned(s, subject, answers)
	}
	return poisoned(s, subject, answers, stage.Toxic{Type: "timeout", Stream: "upstream", Attributes: map[string]any{"timeout": 0}})
}

// newTrickle lets a few kilobytes through in a second.
func newTrickle(s *stage.Stage, subject string, dice *rand.Rand) Fault {
	return poisoned(s, subject, stage.Toxic{Type: "bandwidth", Stream: "downstream", Attributes: map[string]any{"rate": 2 + dice.IntN(30)}})
}

// newSnap ends each connection after so many bytes, in the middle of an answer.
func newSnap(s *stage.Stage, subject string, dice *rand.Rand) Fault {
	return poisoned(s, subject, stage.Toxic{Type: "limit_data", Stream: "downstream", Attributes: map[string]any{"bytes": 100 + dice.IntN(6000)}})
}
