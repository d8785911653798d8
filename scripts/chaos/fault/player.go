package fault

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"email-gateway/scripts/chaos/stage"
	"email-gateway/shared/service"
)

// Player carries out a plan.
type Player struct {
	stage *stage.Stage
	out   io.Writer
	begun time.Time
	parts map[string]*sync.Mutex // of each part that the plan breaks: one fault at a time

	mu   sync.Mutex
	done Done
}

// Done is what was carried out.
type Done struct {
	Faults int
	Kinds  map[string]int
	Kills  map[string]int // by part
	// Failed are faults that could not be begun or ended: the fault of the run itself.
	Failed []string
	// Played is what was broken, from when to when.
	Played []Played
	// Healed is when, from the beginning, the traces of the last one should be gone. On a
	// busy machine it may be later than planned: a service needs its time to start, and the
	// next fault on the part waits for that.
	Healed time.Duration
}

// Played is one fault that was carried out.
type Played struct {
	Kind, Subject string
	From, To      time.Time
}

// NewPlayer makes a player that tells out what it does.
func NewPlayer(s *stage.Stage, out io.Writer) *Player {
	return &Player{stage: s, out: out, done: Done{Kinds: make(map[string]int), Kills: make(map[string]int)}}
}

// endPatience is how long it may take to put something right: RabbitMQ on a busy machine
// needs most of it.
const (
	endPatience = 2 * time.Minute
	endPause    = 2 * time.Second
)

// Play carries out the plan and returns when everything is put right. The end of ctx
// puts everything right at once.
func (p *Player) Play(ctx context.Context, plan []Step) Done {
	p.begun, p.parts = time.Now(), make(map[string]*sync.Mutex)
	for _, step := range plan {
		for _, part := range parts(step.Subject) {
			p.parts[part] = new(sync.Mutex)
		}
	}
	var playing sync.WaitGroup
	for _, step := range plan {
		playing.Go(func() { p.play(ctx, step) })
	}
	playing.Wait()
	return p.done
}

func (p *Player) play(ctx context.Context, step Step) {
	if service.Pause(ctx, time.Until(p.begun.Add(step.At))) != nil {
		return
	}
	defer p.hold(step.Subject)()
	f := step.Kind.make(p.stage, step.Subject, rand.New(rand.NewPCG(step.Seed, 0)))
	from := time.Now()
	p.tell("%-20s %-18s for %.1f s", step.Kind.Name, step.Subject, step.Length.Seconds())
	err := f.Begin(ctx)
	if err == nil {
		_ = service.Pause(ctx, time.Until(p.begun.Add(step.At+step.Length))) // cut short is put right all the same
	}
	p.note(step, from, err, putRight(ctx, f))
}

// putRight ends a fault, and tries again: the run cannot go on with a part that is broken
// for good, and a busy machine is slow.
func putRight(ctx context.Context, f Fault) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endPatience)
	defer cancel()
	for {
		err := f.End(ctx)
		if err == nil || service.Pause(ctx, endPause) != nil {
			return err
		}
	}
}

// hold waits until the parts are whole, which on a busy machine may be later than planned:
// a service needs its time to start. The function that it returns lets go of them.
func (p *Player) hold(subject string) (letGo func()) {
	held := slices.Sorted(slices.Values(parts(subject))) // in one order, so that two cannot wait for each other
	for _, part := range held {
		p.parts[part].Lock()
	}
	return func() {
		for _, part := range held {
			p.parts[part].Unlock()
		}
	}
}

func (p *Player) note(step Step, from time.Time, begin, end error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done.Played = append(p.done.Played, Played{step.Kind.Name, step.Subject, from, time.Now()})
	p.done.Healed = max(p.done.Healed, time.Since(p.begun)+step.Kind.Heal)
	for _, err := range []error{begin, end} {
		if err != nil {
			text := fmt.Sprintf("%s of %s: %v", step.Kind.Name, step.Subject, err)
			p.done.Failed = append(p.done.Failed, text)
			p.line("could not be done: " + text)
		}
	}
	if begin != nil {
		return
	}
	p.done.Faults++
	p.done.Kinds[step.Kind.Name]++
	if step.Kind.Kills {
		p.done.Kills[step.Subject]++
	}
}

func (p *Player) tell(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.line(fmt.Sprintf(format, args...))
}

// line writes what is told; p.mu is held.
func (p *Player) line(text string) {
	fmt.Fprintf(p.out, "%7.1f s  %s\n", time.Since(p.begun).Seconds(), text)
}
