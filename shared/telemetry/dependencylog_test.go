package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"email-gateway/shared/logtest"
	"email-gateway/shared/telemetry"
)

// Changes are logged with the reason, which is masked, and an outage that lasts every five minutes.
func TestDependencyLog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		out := &logtest.Buffer{}
		d := telemetry.NewDependencyLog(slog.New(slog.NewTextHandler(out, nil)))
		refused := errors.New("ana@example.com refused")
		var result error
		check := d.Wrap("storage", func(context.Context) error { return result })
		for _, step := range []struct {
			result error
			after  time.Duration
			want   string // in the new lines; "" = no new line
		}{
			{nil, 0, ""},
			{refused, 0, `msg="dependency does not respond" dependency=storage error="a***@e***.com refused"`},
			{errors.New("denied"), time.Minute, ""},
			{errors.New("denied"), 4 * time.Minute, "error=denied"},
			{fmt.Errorf("stop: %w", context.Canceled), time.Hour, ""},
			{nil, 0, `msg="dependency responds again" dependency=storage interrupted=1h5m0s`},
			{nil, time.Hour, ""},
			{refused, 0, "refused"},
			{nil, 0, "again"},
			{context.DeadlineExceeded, 0, "deadline exceeded"},
			{context.DeadlineExceeded, time.Minute, ""},
			{fmt.Errorf("%w: no route", context.DeadlineExceeded), 0, "no route"},
			{context.DeadlineExceeded, 0, ""},
		} {
			<-time.After(step.after)
			before := len(out.String())
			result = step.result
			if err := check(t.Context()); !errors.Is(err, step.result) {
				t.Errorf("%v, want %v", err, step.result)
			}
			added := out.String()[before:]
			if !strings.Contains(added, step.want) || (step.want == "") != (added == "") {
				t.Errorf("%v logs %q, want %q", step.result, added, step.want)
			}
		}
	})
}
