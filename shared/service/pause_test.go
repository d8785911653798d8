package service_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"email-gateway/shared/service"
)

func TestPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		if err := service.Pause(t.Context(), time.Hour); err != nil || time.Since(start) != time.Hour {
			t.Errorf("%v after %s, want nil after an hour", err, time.Since(start))
		}
		stopped := errors.New("stopped")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Minute, func() { cancel(stopped) })
		if err := service.Pause(ctx, time.Hour); !errors.Is(err, stopped) {
			t.Errorf("err = %v, want the cause", err)
		}
	})
}
