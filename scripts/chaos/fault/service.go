package fault

import (
	"context"
	"math/rand/v2"
	"syscall"

	"email-gateway/scripts/chaos/cluster"
)

// serviceKinds returns the faults of Postgres, Redis, RabbitMQ and S3.
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

		{Name: "s3-kill", Weight: 3, Shortest: 0, Longest: seconds(8), Heal: healStorage, Kills: true, make: killService},
		{Name: "s3-restart", Weight: 1, Shortest: 0, Longest: seconds(8), Heal: healStorage, make: restartService},
		{Name: "s3-pause", Weight: 2, Shortest: seconds(1), Longest: seconds(10), Heal: healStorage, make: pauseService},
	}
	for i := range kinds {
		for _, name := range cluster.ServiceNames() {
			if len(kinds[i].Name) > len(name) && kinds[i].Name[:len(name)] == name {
				kinds[i].Subjects = []string{name}
			}
		}
	}
	return kinds
}

func killService(c *cluster.Cluster, subject string, _ *rand.Rand) Fault {
	service := c.Service(subject)
	return hooks{begin: service.Kill, end: service.Start}
}

func restartService(c *cluster.Cluster, subject string, _ *rand.Rand) Fault {
	service := c.Service(subject)
	return hooks{begin: service.Stop, end: service.Start}
}

// pauseService freezes the process: connections stay open without responses.
func pauseService(c *cluster.Cluster, subject string, _ *rand.Rand) Fault {
	service := c.Service(subject)
	return hooks{
		begin: func(context.Context) error { return service.Signal(syscall.SIGSTOP) },
		end:   func(context.Context) error { return service.Signal(syscall.SIGCONT) },
	}
}

// pausePostgres freezes Postgres with all its sessions: existing sessions do not respond, and no
// new one starts.
func pausePostgres(c *cluster.Cluster, _ string, _ *rand.Rand) Fault {
	return hooks{
		begin: func(context.Context) error { return c.Postgres.SignalAll(syscall.SIGSTOP) },
		end:   func(context.Context) error { return c.Postgres.SignalAll(syscall.SIGCONT) },
	}
}

// alarm raises RabbitMQ's memory alarm, which blocks publishers.
func alarm(c *cluster.Cluster, _ string, _ *rand.Rand) Fault {
	level := func(share string) func(context.Context) error {
		return func(ctx context.Context) error {
			return c.RabbitMQ.Control(ctx, "set_vm_memory_high_watermark", share)
		}
	}
	return hooks{begin: level("0.00001"), end: level("0.4")}
}
