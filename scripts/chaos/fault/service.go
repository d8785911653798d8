package fault

import (
	"context"
	"math/rand/v2"
	"syscall"

	"email-gateway/scripts/chaos/stage"
)

// serviceKinds: what befalls Postgres, Redis and RabbitMQ themselves.
func serviceKinds() []Kind {
	kinds := []Kind{
		{Name: "postgres-kill", Weight: 3, Shortest: 0, Longest: seconds(2), Heal: healSoon, Kills: true, make: killService},
		{Name: "postgres-restart", Weight: 2, Shortest: 0, Longest: seconds(2), Heal: healSoon, make: restartService},
		{Name: "postgres-disconnect", Weight: 3, Heal: healSoon, make: disconnect},
		{Name: "postgres-lock", Weight: 2, Shortest: seconds(1), Longest: seconds(5), Heal: healSoon, make: lockTable},
		{Name: "postgres-pause", Weight: 2, Shortest: seconds(1), Longest: seconds(10), Heal: healSoon, make: pausePostgres},
		{Name: "postgres-readonly", Weight: 2, Shortest: seconds(1), Longest: seconds(5), Heal: healSoon, make: readOnly},

		{Name: "redis-kill", Weight: 3, Shortest: 0, Longest: seconds(8), Heal: healTask, Kills: true, make: killService},
		{Name: "redis-restart", Weight: 2, Shortest: 0, Longest: seconds(8), Heal: healTask, make: restartService},
		{Name: "redis-powercut", Weight: 3, Shortest: 0, Longest: seconds(2), Heal: healTask, Kills: true, make: cutPower},
		{Name: "redis-flush", Weight: 4, Heal: healSoon, make: flush},
		{Name: "redis-full", Weight: 3, Shortest: seconds(2), Longest: seconds(8), Heal: healTask, make: fill},
		{Name: "redis-pause", Weight: 2, Shortest: seconds(1), Longest: seconds(10), Heal: healTask, make: pauseService},

		{Name: "rabbitmq-kill", Weight: 2, Shortest: 0, Longest: seconds(4), Heal: healJob, Kills: true, make: killService},
		{Name: "rabbitmq-restart", Weight: 1, Shortest: 0, Longest: seconds(4), Heal: healJob, make: restartService},
		{Name: "rabbitmq-alarm", Weight: 2, Shortest: seconds(3), Longest: seconds(10), Heal: healJob, make: alarm},
		{Name: "rabbitmq-pause", Weight: 2, Shortest: seconds(1), Longest: seconds(15), Heal: healJob, make: pauseService},
	}
	for i := range kinds {
		for _, name := range []string{stage.Postgres, stage.Redis, stage.RabbitMQ} {
			if len(kinds[i].Name) > len(name) && kinds[i].Name[:len(name)] == name {
				kinds[i].Subjects = []string{name}
			}
		}
	}
	return kinds
}

func killService(s *stage.Stage, subject string, _ *rand.Rand) Fault {
	service := s.Service(subject)
	return hooks{begin: service.Kill, end: service.Start}
}

func restartService(s *stage.Stage, subject string, _ *rand.Rand) Fault {
	service := s.Service(subject)
	return hooks{begin: service.Stop, end: service.Start}
}

// pauseService freezes the process: connections stay, nothing is answered.
func pauseService(s *stage.Stage, subject string, _ *rand.Rand) Fault {
	service := s.Service(subject)
	return hooks{
		begin: func(context.Context) error { return service.Signal(syscall.SIGSTOP) },
		end:   func(context.Context) error { return service.Signal(syscall.SIGCONT) },
	}
}

// pausePostgres freezes it with all its sessions: those that are there do not answer, and
// no new one begins.
func pausePostgres(s *stage.Stage, _ string, _ *rand.Rand) Fault {
	return hooks{
		begin: func(context.Context) error { return s.Postgres.SignalAll(syscall.SIGSTOP) },
		end:   func(context.Context) error { return s.Postgres.SignalAll(syscall.SIGCONT) },
	}
}

// alarm makes the broker believe that it is out of memory: it blocks publishers.
func alarm(s *stage.Stage, _ string, _ *rand.Rand) Fault {
	level := func(share string) func(context.Context) error {
		return func(ctx context.Context) error {
			return s.RabbitMQ.Control(ctx, "set_vm_memory_high_watermark", share)
		}
	}
	return hooks{begin: level("0.00001"), end: level("0.4")}
}
