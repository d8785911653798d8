package gate

import (
	"testing"
	"time"

	"email-gateway/shared/store"
	"email-gateway/worker/internal/provider"
)

// step is one call, so long after the one before.
type step struct {
	after time.Duration
	f     *provider.Failure
	pass  store.GatePass
	want  bool
}

func TestRun(t *testing.T) {
	t.Parallel()
	away := &provider.Failure{Verdict: provider.Retry, Outage: true}
	late := &provider.Failure{Verdict: provider.Retry} // the provider says so itself
	garbled := &provider.Failure{Verdict: provider.Unreadable}
	stopped := &provider.Failure{Verdict: provider.Unspent}
	rejected := &provider.Failure{Verdict: provider.Failed}
	times := func(n int, s step) []step {
		all := make([]step, n)
		for i := range all {
			all[i] = s
		}
		return all
	}
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
	second := store.GatePass{Shuts: 1}
	for name, steps := range map[string][]step{
		"twenty in a row":         join(times(19, step{f: away}), step{f: away, want: true}),
		"one got through":         join(times(19, step{f: away}), step{}, times(19, step{f: away})),
		"one was refused":         join(times(19, step{f: away}), step{f: rejected}, times(19, step{f: away})),
		"a stop says nothing":     join(times(19, step{f: away}), step{f: stopped}, step{f: away, want: true}),
		"few, for five seconds":   {{f: away}, {after: 4 * time.Second, f: away}, {after: time.Second, f: away, want: true}},
		"few, and one in between": {{f: away}, {after: 4 * time.Second}, {after: time.Second, f: away}},
		"two, far apart":          {{f: away}, {after: time.Hour, f: away}},
		"its own time-out":        join(times(40, step{f: late, after: time.Second})),
		"three garbled":           {{f: garbled}, {f: garbled}, {f: garbled, want: true}},
		"garbled and clear":       {{f: garbled}, {f: garbled}, {}, {f: garbled}, {f: garbled}},
		"garbled and away":        {{f: garbled}, {f: garbled}, {f: away}, {f: garbled}, {f: garbled}},
		"after the gate was open again": join(times(20, step{f: away})[:19], step{f: away, want: true},
			times(19, step{f: away, pass: second}), step{f: away, pass: second, want: true}),
		"late news of the time before": join(step{f: away, pass: second}, times(40, step{f: away})),
		"probes":                       join(times(40, step{f: away, after: time.Second, pass: store.GatePass{Probe: true}})),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var r run
			now := time.Now()
			for i, s := range steps {
				now = now.Add(s.after)
				if got := r.ended(s.pass, s.f, now); got != s.want {
					t.Fatalf("call %d: enough %v, want %v", i+1, got, s.want)
				}
			}
		})
	}
}
