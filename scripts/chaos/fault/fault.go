// Package fault is everything that the chaos run does to the stage: a catalogue of
// kinds, a plan that is drawn from a seed, and the player that carries it out. It is used
// by the chaos run only.
package fault

import (
	"context"
	"math/rand/v2"
	"time"

	"email-gateway/scripts/chaos/stage"
)

// Fault is one thing that goes wrong and is put right again.
type Fault interface {
	Begin(ctx context.Context) error
	End(ctx context.Context) error
}

// Kind is a way in which a part can fail.
type Kind struct {
	Name   string
	Weight int // how often it is drawn, relative to the others
	// Shortest and Longest bound how long it lasts.
	Shortest, Longest time.Duration
	// Heal is how long after its end its traces may need to disappear, by the leases and
	// timeouts that the system is built with. A plan leaves that much room.
	Heal time.Duration
	// Kills: it ends its subject by SIGKILL.
	Kills bool
	// Subjects are the parts that it can befall. A part has one fault at a time.
	Subjects []string

	make func(s *stage.Stage, subject string, dice *rand.Rand) Fault
}

// hooks make a fault of two functions; the second may be nil.
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

// QueueLeftover is how long a task that nobody works at any more may stand on its queue as
// active, when its worker, or Redis's last second, is gone: the queue's lease of 30 s, the
// 30 s that asynq allows for clocks, up to 60 s until one of its servers looks, and up to
// 31 s until the task is delivered once more, to find the fence shut. Its email does not
// wait for that.
const QueueLeftover = (30 + 30 + 60 + 31) * time.Second

// What the system is built with, for Kind.Heal.
const (
	// healLease: an email in the hands of a worker that is gone is found when its lease of
	// 60 s is over, within 5 s, then waits for feedback, then for its backoff and its turn.
	healLease = 65*time.Second + healDoubt + 15*time.Second
	// healDoubt: feedback is waited for so long, and within 5 s it is seen that none came.
	healDoubt = stage.FeedbackWindow + 5*time.Second
	// healTask: the id of a task that a worker took and that nobody has any more is free for
	// the email's next task when the queue's lease of 30 s is over by 5 s, and the dispatcher
	// finds it within seconds. The task itself may stand on the queue for much longer, if
	// its email is done: see QueueLeftover.
	healTask = 50 * time.Second
	// healCall: a call to SES may last 30 s.
	healCall = 40*time.Second + healDoubt
	// healJob: a mailing's job is tried again after 10 s and after 30 s.
	healJob = 45 * time.Second
	// healSoon: polls, backoffs, new connections.
	healSoon = 15 * time.Second
	// healNews: an event of SES that an api could not take comes again within seconds. It may
	// change an email's final status.
	healNews = 20 * time.Second
)
