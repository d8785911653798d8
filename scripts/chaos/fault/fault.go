// Package fault injects the faults of the chaos run: a catalogue of kinds, a plan that is generated
// from a seed, and the runner that executes it. Only the chaos run uses it.
package fault

import (
	"context"
	"math/rand/v2"
	"time"

	"email-gateway/scripts/chaos/cluster"
)

// Fault can be injected and reverted.
type Fault interface {
	Begin(ctx context.Context) error
	End(ctx context.Context) error
}

// Kind is a kind of fault of a component.
type Kind struct {
	Name   string
	Weight int // relative frequency in a plan
	// Shortest and Longest limit its duration.
	Shortest, Longest time.Duration
	// Heal is the recovery time after its end, by the leases and timeouts of the system. A plan
	// leaves that much time.
	Heal time.Duration
	// Kills: it kills its subject with SIGKILL.
	Kills bool
	// Subjects are the components that it can affect. A component has one fault at a time.
	Subjects []string

	make func(c *cluster.Cluster, subject string, random *rand.Rand) Fault
}

// hooks implements Fault with two functions; the second may be nil.
type hooks struct {
	begin, end func(ctx context.Context) error
}

func (h hooks) Begin(ctx context.Context) error { return h.begin(ctx) }

func (h hooks) End(ctx context.Context) error {
	if h.end == nil {
		return nil
	}
	return h.end(ctx)
}

// QueueLeftover is how long an abandoned task may stay active on its queue, after its worker died
// or Redis lost its last second of writes: the queue's lease of 30 s, asynq's clock tolerance of 30
// s, up to 60 s until one of its servers checks, and up to 31 s until the task is delivered once
// more and the fence rejects it. Its email does not wait for that.
const QueueLeftover = (30 + 30 + 60 + 31) * time.Second

// Times of the system, for Kind.Heal.
const (
	// healLease: an email of a dead worker is found within 5 s after its lease of 60 s expires,
	// then waits for feedback, then for its backoff and its turn.
	healLease = 65*time.Second + healUnknown + 15*time.Second
	// healUnknown: the wait for feedback, and up to 5 s until the dispatcher notices its end.
	healUnknown = cluster.FeedbackWindow + 5*time.Second
	// healTask: the id of an abandoned task is free for the email's next task 5 s after the queue's
	// lease of 30 s expires, and the dispatcher finds the email within seconds. The task itself may
	// stay on the queue for much longer if its email is finished: see QueueLeftover.
	healTask = 50 * time.Second
	// healCall: a call to SES may last 30 s.
	healCall = 40*time.Second + healUnknown
	// healJob: a mailing's job is retried after 10 s and after 30 s.
	healJob = 45 * time.Second
	// healStorage: reading the attachments of an email may last 20 s, and then the email waits for
	// 10 s to 20 s. The storage is tried again within seconds after its last failure.
	healStorage = 50 * time.Second
	// healSoon: polls, backoffs, new connections.
	healSoon = 15 * time.Second
	// healEvent: SNS delivers an event again within seconds after an api failed to process it. The
	// event may change an email's final status.
	healEvent = 20 * time.Second
)
