package fault

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"email-gateway/scripts/chaos/cluster"
	"email-gateway/shared/service"
)

// Runner executes a plan.
type Runner struct {
	cluster    *cluster.Cluster
	out        io.Writer
	startedAt  time.Time
	components map[string]*sync.Mutex // by component of the plan: one fault at a time

	mu   sync.Mutex
	done Result
}

// Result is the result of a plan.
type Result struct {
	Faults int
	Kinds  map[string]int
	Kills  map[string]int // by component
	// Failed are faults that could not be injected or reverted: an error of the run itself.
	Failed []string
	// Injected are the injected faults with their times.
	Injected []Injected
	// Healed is when the system should have recovered from the last fault, from the beginning of
	// the plan. On a busy machine it may be later than planned: a service starts slowly, and the
	// next fault of the component waits for that.
	Healed time.Duration
}

// Injected is one injected fault.
type Injected struct {
	Kind, Subject string
	From, To      time.Time
	// Begun and Ending are the part in which the fault was complete: from its injection until its
	// revocation began. Zero: it could not be injected.
	Begun, Ending time.Time
}

// NewRunner returns a runner that writes its progress to out.
func NewRunner(c *cluster.Cluster, out io.Writer) *Runner {
	return &Runner{cluster: c, out: out, done: Result{Kinds: make(map[string]int), Kills: make(map[string]int)}}
}

// revertTimeout is the timeout for reverting a fault: RabbitMQ on a busy machine needs most of it.
const (
	revertTimeout = 2 * time.Minute
	revertPause   = 2 * time.Second
)

// Run executes the plan and returns when all faults are reverted. When ctx ends, it reverts all
// faults immediately.
func (r *Runner) Run(ctx context.Context, plan []Step) Result {
	r.startedAt, r.components = time.Now(), make(map[string]*sync.Mutex)
	for _, step := range plan {
		for _, component := range components(step.Subject) {
			r.components[component] = new(sync.Mutex)
		}
	}
	var running sync.WaitGroup
	for _, step := range plan {
		running.Go(func() { r.execute(ctx, step) })
	}
	running.Wait()
	return r.done
}

func (r *Runner) execute(ctx context.Context, step Step) {
	if service.Pause(ctx, time.Until(r.startedAt.Add(step.At))) != nil {
		return
	}
	defer r.lock(step.Subject)()
	f := step.Kind.make(r.cluster, step.Subject, rand.New(rand.NewPCG(step.Seed, 0)))
	p := Injected{Kind: step.Kind.Name, Subject: step.Subject, From: time.Now()}
	r.progress("%-20s %-18s for %.1f s", step.Kind.Name, step.Subject, step.Length.Seconds())
	err := f.Begin(ctx)
	if err == nil {
		p.Begun = time.Now()
		_ = service.Pause(ctx, time.Until(r.startedAt.Add(step.At+step.Length))) // revert even if ctx ends
		p.Ending = time.Now()
	}
	r.record(step, p, err, revert(ctx, f))
}

// revert reverts a fault, with retries: the run cannot continue with a broken component, and a
// busy machine is slow.
func revert(ctx context.Context, f Fault) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), revertTimeout)
	defer cancel()
	for {
		err := f.End(ctx)
		if err == nil || service.Pause(ctx, revertPause) != nil {
			return err
		}
	}
}

// lock locks the components of a subject when they have no fault, which on a busy machine may be
// later than planned: a service starts slowly. The returned function unlocks them.
func (r *Runner) lock(subject string) (unlock func()) {
	held := slices.Sorted(slices.Values(components(subject))) // in a fixed order, against deadlocks
	for _, component := range held {
		r.components[component].Lock()
	}
	return func() {
		for _, component := range held {
			r.components[component].Unlock()
		}
	}
}

func (r *Runner) record(step Step, p Injected, begin, end error) {
	p.To = time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done.Injected = append(r.done.Injected, p)
	r.done.Healed = max(r.done.Healed, time.Since(r.startedAt)+step.Kind.Heal)
	for _, err := range []error{begin, end} {
		if err != nil {
			text := fmt.Sprintf("%s of %s: %v", step.Kind.Name, step.Subject, err)
			r.done.Failed = append(r.done.Failed, text)
			r.line("not injected: " + text)
		}
	}
	if begin != nil {
		return
	}
	r.done.Faults++
	r.done.Kinds[step.Kind.Name]++
	if step.Kind.Kills {
		r.done.Kills[step.Subject]++
	}
}

func (r *Runner) progress(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.line(fmt.Sprintf(format, args...))
}

// line writes a progress message; r.mu is held.
func (r *Runner) line(text string) {
	fmt.Fprintf(r.out, "%7.1f s  %s\n", time.Since(r.startedAt).Seconds(), text)
}
