package asynqueue

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"email-gateway/shared/service"
)

// Admission decides when a task may be taken. A task that is not admitted stays pending: it is neither active nor under a lease
// while it waits.
type Admission interface {
	// Admit returns when a task may be taken, or when ctx ends. It is followed by exactly one call of Unused or Used, unless
	// it returns an error, or zero because pending, which it calls before it waits for the rate, has returned false. others
	// is the total concurrency of the Servers before this one.
	Admit(ctx context.Context, others int, pending func() bool) (admitted time.Time, err error)
	Unused()
	Used(admitted time.Time)
	// Begin and End enclose each call of the handler. Begin returns when the task was admitted,
	// zero if unknown.
	Begin() (admitted time.Time)
	End()
}

// admissionWait bounds the wait for an admission. asynq computes the task's lease of 30 s before it
// sends the script that takes the task, and extends it for the first time within 5 s after that: 20
// s of the lease remain if Redis is slow.
const admissionWait = 5 * time.Second

// refusalPause is the pause between two refusals while the consumer stops: asynq tries again immediately until its Server has
// stopped.
const refusalPause = 5 * time.Millisecond

// errNotAdmitted makes asynq try again immediately, with a new lease.
var errNotAdmitted = errors.New("not admitted yet")

// admitted is the Redis client of one asynq.Server: it delays the script that takes a task until
// the task is admitted. asynq has no such hook: it calls its handler after it has taken the task.
// One goroutine per Server takes tasks.
type admitted struct {
	redis.UniversalClient
	admission Admission
	others    int
	stopping  context.Context
	// busy has the queues whose last script took a task.
	busy map[string]bool
	// kept is the admission of a script that Redis does not know, until EVAL sends it again.
	kept time.Time
}

// EvalSha implements redis.Scripter.
func (a *admitted) EvalSha(ctx context.Context, sha1 string, keys []string, args ...any) *redis.Cmd {
	if !takes(keys) {
		return a.UniversalClient.EvalSha(ctx, sha1, keys, args...)
	}
	return a.take(ctx, keys[0], func() *redis.Cmd { return a.UniversalClient.EvalSha(ctx, sha1, keys, args...) })
}

// Eval implements redis.Scripter: it is used for a script that Redis does not know yet.
func (a *admitted) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	if !takes(keys) {
		return a.UniversalClient.Eval(ctx, script, keys, args...)
	}
	return a.take(ctx, keys[0], func() *redis.Cmd { return a.UniversalClient.Eval(ctx, script, keys, args...) })
}

// take runs the script when it is admitted. If it took no task, the admission is returned by Unused, or kept if the script is
// sent again by EVAL.
func (a *admitted) take(ctx context.Context, queue string, run func() *redis.Cmd) *redis.Cmd {
	at, err := a.admit(ctx, queue)
	if err != nil {
		refused := redis.NewCmd(ctx)
		refused.SetErr(err)
		return refused
	}
	answer := run()
	if redis.HasErrorPrefix(answer.Err(), "NOSCRIPT") { // redis.Script.Run calls Eval next
		a.kept = at
		return answer
	}
	a.busy[queue] = answer.Err() == nil
	if answer.Err() != nil {
		a.admission.Unused()
		return answer
	}
	a.admission.Used(at)
	return answer
}

// admit returns the kept admission or waits for one. The error is redis.Nil if the queue is empty, as that of the script, or
// that of a Redis which does not answer: sent to it, the script would take a task when Redis resumes, for a caller that has left.
func (a *admitted) admit(ctx context.Context, queue string) (time.Time, error) {
	at := a.kept
	a.kept = time.Time{}
	if !at.IsZero() {
		return at, nil
	}
	waiting, cancel := context.WithTimeout(a.stopping, admissionWait)
	defer cancel()
	nothing := error(redis.Nil)
	at, err := a.admission.Admit(waiting, a.others, func() bool {
		some, err := a.pending(ctx, queue)
		nothing = cmp.Or(err, nothing)
		return some
	})
	switch {
	case err == nil && at.IsZero():
		return at, nothing
	case err == nil && waiting.Err() == nil:
		return at, nil
	case err == nil: // the process was frozen or is stopping: the lease is too old
		a.admission.Unused()
	}
	if a.stopping.Err() != nil {
		_ = service.Pause(ctx, refusalPause)
	}
	return at, errNotAdmitted
}

// pending reports whether the queue may have a task. Idle Servers would otherwise all hold a token of the send rate to look at
// empty queues. After a task there usually is another one, and the script alone finds out.
func (a *admitted) pending(ctx context.Context, queue string) (bool, error) {
	if a.busy[queue] {
		return true, nil
	}
	n, err := a.LLen(ctx, queue).Result()
	return n > 0, err
}

// takes reports whether these are the keys of the script that takes a task: it is the only script of asynq whose keys begin
// with pending and paused.
func takes(keys []string) bool {
	return len(keys) > 1 && strings.HasSuffix(keys[0], ":pending") && strings.HasSuffix(keys[1], ":paused")
}
