package httpapi_test

import (
	"log/slog"
	"testing"
)

// newLog writes to the test's own.
func newLog(tb testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(tb.Output(), nil))
}
