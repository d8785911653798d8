package service_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"email-gateway/shared/service"
)

// diary is what the parts of one program did, in order. Run calls them one after
// the other from one goroutine.
type diary []string

// part is a service that records its calls in the diary.
type part struct {
	diary    *diary
	name     string
	startErr error
	stopErr  error
	started  func(ctx context.Context, failed func(error)) // nil = nothing more to do
	stopping func(ctx context.Context)
}

func (p part) Start(ctx context.Context, failed func(error)) error {
	*p.diary = append(*p.diary, "start "+p.name)
	if p.started != nil {
		p.started(ctx, failed)
	}
	return p.startErr
}

func (p part) Stop(ctx context.Context) error {
	*p.diary = append(*p.diary, "stop "+p.name)
	if p.stopping != nil {
		p.stopping(ctx)
	}
	return p.stopErr
}

func named(parts ...part) []service.Named {
	list := make([]service.Named, len(parts))
	for i, p := range parts {
		list[i] = service.Named{Name: p.name, Service: p}
	}
	return list
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

func TestRun_LogsVersion(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	stop()
	var log strings.Builder
	if err := service.Run(ctx, slog.New(slog.NewTextHandler(&log, nil)), time.Second); err != nil {
		t.Fatal(err)
	}
	if want := "msg=starting version=" + service.Version(); !strings.Contains(log.String(), want) {
		t.Errorf("want %s in %q", want, log.String())
	}
}

func TestRun_StartsInOrderStopsInReverse(t *testing.T) {
	t.Parallel()
	var d diary
	ctx, stop := context.WithCancel(t.Context())
	err := service.Run(ctx, discard(), time.Second, named(
		part{diary: &d, name: "store"},
		part{diary: &d, name: "sender"},
		part{diary: &d, name: "consumer", started: func(context.Context, func(error)) { stop() }},
	)...)
	if err != nil {
		t.Errorf("Run after a requested stop = %v, want nil", err)
	}
	want := diary{"start store", "start sender", "start consumer", "stop consumer", "stop sender", "stop store"}
	if diff := cmp.Diff(want, d); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestRun_PartCannotStart(t *testing.T) {
	t.Parallel()
	var d diary
	refused := errors.New("connection refused")
	err := service.Run(t.Context(), discard(), time.Second, named(
		part{diary: &d, name: "store"},
		part{diary: &d, name: "sender", startErr: refused},
		part{diary: &d, name: "consumer"},
	)...)
	if !errors.Is(err, refused) || err.Error() != "start sender: connection refused" {
		t.Errorf("got %v", err)
	}
	if diff := cmp.Diff(diary{"start store", "start sender", "stop store"}, d); diff != "" {
		t.Errorf("only what started is stopped (-want +got):\n%s", diff)
	}
}

func TestRun_PartFailsLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var d diary
		lost := errors.New("listener lost")
		err := service.Run(t.Context(), discard(), time.Second, named(
			part{diary: &d, name: "store"},
			part{diary: &d, name: "http", started: func(_ context.Context, failed func(error)) {
				time.AfterFunc(time.Hour, func() {
					failed(lost)
					failed(errors.New("an afterthought"))
				})
			}},
		)...)
		if !errors.Is(err, lost) || err.Error() != "http: listener lost" {
			t.Errorf("got %v, want the first failure with the part's name", err)
		}
		if diff := cmp.Diff(diary{"start store", "start http", "stop http", "stop store"}, d); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// If one part fails while another is still starting, the latter's error about its cancelled context
// must not hide the reason.
func TestRun_PartFailsDuringStart(t *testing.T) {
	t.Parallel()
	for _, succeeds := range []bool{true, false} {
		var d diary
		lost := errors.New("listener lost")
		second := part{diary: &d, name: "sender"}
		if !succeeds {
			second.startErr = context.Canceled
		}
		var fail func(error)
		second.started = func(context.Context, func(error)) { fail(lost) }
		err := service.Run(t.Context(), discard(), time.Second, named(
			part{diary: &d, name: "http", started: func(_ context.Context, failed func(error)) { fail = failed }},
			second,
			part{diary: &d, name: "consumer"},
		)...)
		if !errors.Is(err, lost) || errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want the error of the part that failed", err)
		}
		want := diary{"start http", "start sender", "stop sender", "stop http"}
		if !succeeds {
			want = diary{"start http", "start sender", "stop http"}
		}
		if diff := cmp.Diff(want, d); diff != "" {
			t.Errorf("sender succeeds = %v (-want +got):\n%s", succeeds, diff)
		}
	}
}

func TestRun_StopWhileStarting(t *testing.T) {
	t.Parallel()
	var d diary
	ctx, stop := context.WithCancel(t.Context())
	err := service.Run(ctx, discard(), time.Second, named(
		part{diary: &d, name: "sender", startErr: context.Canceled, started: func(context.Context, func(error)) { stop() }},
		part{diary: &d, name: "consumer"},
	)...)
	if err != nil {
		t.Errorf("got %v, want nil, because the stop was requested", err)
	}
	if diff := cmp.Diff(diary{"start sender"}, d); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestRun_AllStopsAndErrors(t *testing.T) {
	t.Parallel()
	var d diary
	lost, stuck, dirty := errors.New("lost"), errors.New("stuck"), errors.New("dirty")
	err := service.Run(t.Context(), discard(), time.Second, named(
		part{diary: &d, name: "store", stopErr: dirty},
		part{diary: &d, name: "sender", stopErr: stuck},
		part{diary: &d, name: "http", started: func(_ context.Context, failed func(error)) { failed(lost) }},
	)...)
	for _, want := range []error{lost, stuck, dirty} {
		if !errors.Is(err, want) {
			t.Errorf("%v is missing in %v", want, err)
		}
	}
	if got := err.Error(); !strings.Contains(got, "stop sender: stuck") || !strings.Contains(got, "stop store: dirty") {
		t.Errorf("the error does not name the parts: %q", got)
	}
	if len(d) != 6 {
		t.Errorf("a part was left running: %v", d)
	}
}

// The grace period limits all stops together, and its context is not cancelled with the program's.
func TestRun_StopHasItsOwnContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const grace = 40 * time.Second
		var d diary
		ctx, stop := context.WithCancel(t.Context())
		start := time.Now()
		err := service.Run(ctx, discard(), grace, named(
			part{diary: &d, name: "store", stopping: func(ctx context.Context) {
				if ctx.Err() == nil {
					t.Error("the second stop got more than the rest of the grace period")
				}
			}},
			part{
				diary: &d, name: "consumer",
				started: func(context.Context, func(error)) { stop() },
				stopping: func(ctx context.Context) {
					if ctx.Err() != nil {
						t.Error("the context of the stops was cancelled with the program's")
					}
					<-ctx.Done()
				},
			},
		)...)
		if err != nil || time.Since(start) != grace {
			t.Errorf("ended after %s with %v, want %s and nil", time.Since(start), err, grace)
		}
	})
}

func TestRun_WithoutParts(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := service.Run(ctx, discard(), time.Second); err != nil {
		t.Error(err)
	}
}
