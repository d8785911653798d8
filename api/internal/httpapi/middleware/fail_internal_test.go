package middleware

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"email-gateway/api/internal/httpapi/problem"
	"email-gateway/shared/store"
)

// Only errors caused by the end of the request itself are logged as warnings. A function that is switched off is no error.
func TestLevelOf(t *testing.T) {
	t.Parallel()
	live := t.Context()
	gone, cancel := context.WithCancel(live)
	cancel()
	for _, tt := range []struct {
		ctx  context.Context
		err  error
		want slog.Level
	}{
		{gone, errors.Join(store.ErrUnknownOutcome, context.Canceled), slog.LevelWarn},
		{gone, fmt.Errorf("find email: %w", store.ErrUnavailable), slog.LevelWarn},
		{gone, errors.New("a constraint was violated"), slog.LevelError},
		{live, fmt.Errorf("find email: %w", store.ErrUnavailable), slog.LevelError},
		{live, problem.BulkDisabled, slog.LevelInfo},
		{live, problem.Busy, slog.LevelError},
	} {
		if got := levelOf(tt.ctx, tt.err); got != tt.want {
			t.Errorf("%v with a context that ended with %v: %s, want %s", tt.err, tt.ctx.Err(), got, tt.want)
		}
	}
}
