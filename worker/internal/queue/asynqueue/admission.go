package asynqueue

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"email-gateway/shared/service"
)

// Admission decides when a task may be taken. A task that was not admitted stays pending: it is
// neither active nor under a lease while it waits.
type Admission interface {
	// Admit returns when a task may be taken, or ctx ends. Exactly one of Unused and Used follows.
	// others is the sum of the concurrency of the Servers before this one.
	Admit(ctx context.Context, others int) (admitted time.Time, err error)
	Unused()
	Used(admitted time.Time)
	// Begin and End enclose each call of the handler. Begin returns when the task was admitted,
	// zero if that is not known.
	Begin() (admitted time.Time)
	End()
}

// admissionWait bounds a wait for an admission. asynq computes the lease of 30 s of the task that
// it will be given before it sends the script, and extends it for the first time within 5 s
// after that: 20 s of the lease are left if Redis is slow.
const admissionWait = 5 * time.Second

// refusalPause is the pause between two refusals while the consumer stops: asynq asks again at
// once until its Server has been told.
const refusalPause = 5 * time.Millisecond

// errNotAdmitted makes asynq ask again at once, with a new lease.
var errNotAdmitted = errors.New("not admitted yet")

// admitted is the client of one asynq.Server: it holds back the script that takes a task until
// the task is admitted. asynq has no such place of its own: it calls its handler when it
// has taken the task. One goroutine of a Server takes tasks.
type admitted struct {
	redis.UniversalClient
	admission Admission
	others    int
	stopping  context.Context
	// kept is when the script was admitted that Redis does not know: it is sent again, as a whole.
	kept time.Time
}

// EvalSha implements redis.Scripter.
func (a *admitted) EvalSha(ctx context.Context, sha1 string, keys []string, args ...any) *redis.Cmd {
	if !takes(keys) {
		return a.UniversalClient.EvalSha(ctx, sha1, keys, args...)
	}
	return a.take(ctx, func() *redis.Cmd { return a.UniversalClient.EvalSha(ctx, sha1, keys, args...) })
}

// Eval implements redis.Scripter: it is for a script that Redis does not know yet.
func (a *admitted) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	if !takes(keys) {
		return a.UniversalClient.Eval(ctx, script, keys, args...)
	}
	return a.take(ctx, func() *redis.Cmd { return a.UniversalClient.Eval(ctx, script, keys, args...) })
}

// take runs the script when it is admitted. An answer other than a task gives the admission back,
// unless the script comes again as a whole.
func (a *admitted) take(ctx context.Context, run func() *redis.Cmd) *redis.Cmd {
	at, err := a.admit()
	if err != nil {
		if a.stopping.Err() != nil {
			_ = service.Pause(ctx, refusalPause)
		}
		refused := redis.NewCmd(ctx)
		refused.SetErr(errNotAdmitted)
		return refused
	}
	answer := run()
	if redis.HasErrorPrefix(answer.Err(), "NOSCRIPT") { // redis.Script.Run calls Eval next
		a.kept = at
		return answer
	}
	if answer.Err() != nil {
		a.admission.Unused()
		return answer
	}
	a.admission.Used(at)
	return answer
}

// admit waits for an admission, if there is none yet.
func (a *admitted) admit() (time.Time, error) {
	at := a.kept
	a.kept = time.Time{}
	if !at.IsZero() {
		return at, nil
	}
	waiting, cancel := context.WithTimeout(a.stopping, admissionWait)
	defer cancel()
	at, err := a.admission.Admit(waiting, a.others)
	if err == nil && waiting.Err() != nil { // the process was frozen, or stops: the lease is old
		a.admission.Unused()
		err = waiting.Err()
	}
	return at, err
}

// takes says whether these are the keys of the script that takes a task: of asynq's scripts only
// that one begins with the keys pending and paused.
func takes(keys []string) bool {
	return len(keys) > 1 && strings.HasSuffix(keys[0], ":pending") && strings.HasSuffix(keys[1], ":paused")
}
