package fault

import (
	"context"
	"math/rand/v2"
	"syscall"
	"time"

	"email-gateway/scripts/chaos/stage"
)

// programKinds: each program is killed, restarted in good order, held up for a moment
// and frozen for longer than any lease.
func programKinds() []Kind {
	var kinds []Kind
	for _, program := range []struct {
		kind string
		heal time.Duration
	}{{stage.API, healNews}, {"dispatcher", healSoon}, {"worker", healLease}} {
		names := stage.ProgramNames(program.kind)
		kinds = append(kinds,
			Kind{
				Name: program.kind + "-kill", Weight: 6, Shortest: seconds(0.1), Longest: seconds(4), Heal: program.heal, Kills: true,
				Subjects: names, make: newKill,
			},
			Kind{
				Name: program.kind + "-restart", Weight: 2, Shortest: seconds(0.1), Longest: seconds(2), Heal: healSoon,
				Subjects: names, make: newRestart,
			},
			Kind{
				Name: program.kind + "-pause", Weight: 2, Shortest: seconds(1), Longest: seconds(10), Heal: healSoon,
				Subjects: names, make: newFreeze,
			},
			Kind{
				Name: program.kind + "-freeze", Weight: 1, Shortest: freezeTime, Longest: freezeTime, Heal: healFreeze,
				Subjects: names, make: newFreeze,
			},
		)
	}
	return kinds
}

const (
	// freezeTime is longer than the lease of a claim (60 s), of a task (30 s) and than
	// Postgres keeps an idle transaction (60 s).
	freezeTime = 70 * time.Second
	// healFreeze: its leases ended before it did. An email that was in its hands waits for
	// feedback, its backoff and its turn.
	healFreeze = stage.FeedbackWindow + 20*time.Second
)

func newKill(s *stage.Stage, subject string, _ *rand.Rand) Fault {
	p := s.Program(subject)
	return hooks{begin: p.Kill, end: p.Start}
}

func newRestart(s *stage.Stage, subject string, _ *rand.Rand) Fault {
	p := s.Program(subject)
	return hooks{begin: p.Stop, end: p.Start}
}

func newFreeze(s *stage.Stage, subject string, _ *rand.Rand) Fault {
	p := s.Program(subject)
	return hooks{
		begin: func(context.Context) error { return p.Signal(syscall.SIGSTOP) },
		end:   func(context.Context) error { return p.Signal(syscall.SIGCONT) },
	}
}
