package service_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"email-gateway/shared/service"
)

// All parts are stopped at once: a slow one does not delay the stop of another.
func TestGroup_StopsAllAtOnce(t *testing.T) {
	t.Parallel()
	var slowDiary, quickDiary diary
	stopped := make(chan struct{})
	all := service.Group(named(
		part{diary: &quickDiary, name: "quick", stopping: func(context.Context) { close(stopped) }},
		part{diary: &slowDiary, name: "slow", stopErr: errors.New("too late"), stopping: func(ctx context.Context) {
			select {
			case <-stopped:
			case <-ctx.Done():
				t.Error("the other part was not stopped at the same time")
			}
		}},
	)...)
	if err := all.Start(t.Context(), func(error) {}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := all.Stop(ctx); err == nil || !strings.Contains(err.Error(), "slow: too late") {
		t.Errorf("Stop: %v, want the error with the part's name", err)
	}
}

func TestGroup_PartThatCannotStart(t *testing.T) {
	t.Parallel()
	var d diary
	all := service.Group(named(
		part{diary: &d, name: "first"}, part{diary: &d, name: "second", startErr: errors.New("no port")}, part{diary: &d, name: "third"},
	)...)
	if err := all.Start(t.Context(), func(error) {}); err == nil || err.Error() != "second: no port" {
		t.Errorf("Start: %v", err)
	}
	if want := (diary{"start first", "start second", "stop first"}); !slices.Equal(d, want) {
		t.Errorf("%q, want %q", d, want)
	}
}
