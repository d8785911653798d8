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
		begun := time.Now()
		if err := service.Pause(t.Context(), time.Hour); err != nil || time.Since(begun) != time.Hour {
			t.Errorf("%v after %s, want nil after an hour", err, time.Since(begun))
		}
		stopped := errors.New("stopped")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Minute, func() { cancel(stopped) })
		if err := service.Pause(ctx, time.Hour); !errors.Is(err, stopped) {
			t.Errorf("err = %v, want the cause", err)
		}
	})
}
