package fault

import (
	"context"
	"math/rand/v2"
	"syscall"
	"time"

	"email-gateway/scripts/chaos/cluster"
)

// programKinds returns the faults of programs: each is killed, restarted gracefully, paused for
// seconds and frozen for longer than any lease.
func programKinds() []Kind {
	var kinds []Kind
	for _, program := range []struct {
		kind string
		heal time.Duration
	}{{cluster.API, healEvent}, {"dispatcher", healSoon}, {"worker", healLease}} {
		names := cluster.ProgramNames(program.kind)
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
	// freezeTime is longer than the lease of a claim (60 s), the lease of a task (30 s) and
	// Postgres's timeout of an idle transaction (60 s).
	freezeTime = 70 * time.Second
	// healFreeze: the program's leases expired during the freeze. Its emails wait for feedback,
	// their backoff and their turn.
	healFreeze = cluster.FeedbackWindow + 20*time.Second
)

func newKill(c *cluster.Cluster, subject string, _ *rand.Rand) Fault {
	p := c.Program(subject)
	return hooks{begin: p.Kill, end: p.Start}
}

func newRestart(c *cluster.Cluster, subject string, _ *rand.Rand) Fault {
	p := c.Program(subject)
	return hooks{begin: p.Stop, end: p.Start}
}

func newFreeze(c *cluster.Cluster, subject string, _ *rand.Rand) Fault {
	p := c.Program(subject)
	return hooks{
		begin: func(context.Context) error { return p.Signal(syscall.SIGSTOP) },
		end:   func(context.Context) error { return p.Signal(syscall.SIGCONT) },
	}
}
