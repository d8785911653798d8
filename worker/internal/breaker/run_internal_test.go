package breaker

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	breakerstore "email-gateway/shared/store/breaker"
	"email-gateway/worker/internal/provider"
)

// step is one call, this long after the previous one. Its email differs from those of all previous
// steps, unless it has a number.
type step struct {
	after time.Duration
	f     *provider.Failure
	pass  breakerstore.Pass
	email int
	began time.Duration // the call began this long before; 0 = it began and ended in the same moment
	want  diagnosis
}

func TestRun(t *testing.T) {
	t.Parallel()
	away := &provider.Failure{Outcome: provider.Retry, Outage: true}
	broken := &provider.Failure{Outcome: provider.Unknown, Outage: true} // a 500, a broken connection, a timeout
	late := &provider.Failure{Outcome: provider.Retry}                   // the provider's own timeout response
	partial := &provider.Failure{Outcome: provider.Retry, Outage: true, Incomplete: true}
	garbled := &provider.Failure{Outcome: provider.Unreadable}
	stopped := &provider.Failure{Outcome: provider.Unspent}
	withheld := &provider.Failure{Outcome: provider.Park, Withheld: true}
	rejected := &provider.Failure{Outcome: provider.Failed}
	unsent := &provider.Failure{Outcome: provider.Failed, Category: provider.ValidationError} // the SDK did not send it
	times := func(n int, s step) []step { return slices.Repeat([]step{s}, n) }
	join := func(parts ...any) (all []step) {
		for _, part := range parts {
			switch part := part.(type) {
			case step:
				all = append(all, part)
			case []step:
				all = append(all, part...)
			}
		}
		return all
	}
	second := breakerstore.Pass{Openings: 1}
	for name, steps := range map[string][]step{
		"twenty in a row":         join(times(5, step{f: away}), times(14, step{f: away, want: suspected}), step{f: away, want: certain}),
		"twenty unknown outcomes": join(times(5, step{f: broken}), times(14, step{f: broken, want: suspected}), step{f: broken, want: certain}),
		"one email, many times":   times(40, step{f: broken, email: 1, after: time.Second}),
		"one email, and another":  join(times(19, step{f: broken, email: 1}), step{f: broken, want: certain}),
		"two emails, few times":   join(times(4, step{f: away, email: 1}), step{f: away, email: 2}, step{f: away, email: 1, want: suspected}),
		"one succeeded":           join(times(5, step{f: away}), step{}, times(5, step{f: away}), step{f: away, want: suspected}),
		"one was refused":         join(times(5, step{f: away}), step{f: rejected}, times(5, step{f: away}), step{f: away, want: suspected}),
		"a stop does not count":   join(times(5, step{f: away}), step{f: stopped}, step{f: away, want: suspected}),
		"withheld":                {{f: garbled}, {f: garbled}, {f: withheld}, {f: garbled, want: certain}},
		"partly sent":             join(times(40, step{f: partial, after: time.Second})),
		"partly sent, in between": join(times(5, step{f: away}), step{f: partial}, times(14, step{f: away, want: suspected}), step{f: partial}, step{f: away, want: certain}),
		"requests never sent":     join(times(5, step{f: away}), step{f: unsent}, times(14, step{f: away, want: suspected}), step{f: unsent}, step{f: away, want: certain}),
		"never sent, garbled":     {{f: garbled}, {f: garbled}, {f: unsent}, {f: garbled, want: certain}},
		"few, for five seconds":   {{f: away}, {after: 4 * time.Second, f: broken}, {after: time.Second, f: away, want: certain}},
		"one, for five seconds":   {{f: away, email: 1}, {after: 4 * time.Second, f: away, email: 1}, {after: 4 * time.Second, f: away, email: 1}, {f: away, want: certain}},
		"few, and one in between": {{f: away}, {after: 4 * time.Second}, {after: time.Second, f: away}},
		"two, far apart":          {{f: away}, {after: time.Hour, f: away}},
		"its own time-out":        join(times(40, step{f: late, after: time.Second})),
		"three garbled":           {{f: garbled}, {f: garbled}, {f: garbled, want: certain}},
		"garbled and clear":       {{f: garbled}, {f: garbled}, {}, {f: garbled}, {f: garbled}},
		"garbled and away":        {{f: garbled}, {f: garbled}, {f: away}, {f: garbled}, {f: garbled}},
		"after the breaker closed again": join(times(5, step{f: away}), times(14, step{f: away, want: suspected}), step{f: away, want: certain},
			times(5, step{f: away, pass: second}), step{f: away, pass: second, want: suspected}),
		"late result of an earlier period": join(step{f: away, pass: second}, times(40, step{f: away, after: time.Second, began: time.Hour})),
		"a standby without the last opening": join(step{pass: second}, times(5, step{f: away, after: time.Millisecond}),
			times(14, step{f: away, want: suspected}), step{f: away, want: certain}),
		"garbled after a standby without the last opening": {
			{f: garbled, pass: second}, {f: garbled, pass: second}, {f: garbled, after: time.Millisecond}, {f: garbled}, {f: garbled, want: certain},
		},
		"probes": join(times(40, step{f: away, after: time.Second, pass: breakerstore.Pass{Probe: true}})),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var r run
			now := time.Now()
			for i, s := range steps {
				now = now.Add(s.after)
				c := Call{Email: uuid.New(), Pass: s.pass, Began: now.Add(-s.began)}
				if s.email != 0 {
					c.Email = uuid.UUID{byte(s.email)}
				}
				if got, _ := r.ended(c, s.f, now); got != s.want {
					t.Fatalf("call %d: %v, want %v", i+1, got, s.want)
				}
			}
		})
	}
}
