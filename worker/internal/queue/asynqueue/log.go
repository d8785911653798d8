package asynqueue

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/time/rate"

	"email-gateway/shared/email"
)

// logger receives asynq's log. During a Redis outage each of asynq's loops logs several lines per
// second: only a few are passed on, with the number of dropped ones.
type logger struct {
	log     *slog.Logger
	limit   *rate.Limiter
	dropped atomic.Int64
}

func newLogger(log *slog.Logger) *logger {
	return &logger{log: log, limit: rate.NewLimiter(rate.Every(10*time.Second), 3)}
}

// Debug and Info messages of asynq concern its own loops.
func (l *logger) Debug(...any)      {}
func (l *logger) Info(args ...any)  { l.log.Debug("asynq", "detail", fmt.Sprint(args...)) }
func (l *logger) Fatal(args ...any) { l.warn(fmt.Sprint(args...)) }

// Error is also called when a Server was not admitted, which is not an error.
func (l *logger) Error(args ...any) {
	text := fmt.Sprint(args...)
	if strings.HasSuffix(text, errNotAdmitted.Error()) {
		return
	}
	l.warn(text)
}

// Warn is also called for each permanently failed task, which the pipeline has logged.
func (l *logger) Warn(args ...any) {
	text := fmt.Sprint(args...)
	if strings.HasPrefix(text, "Retry exhausted") {
		return
	}
	l.warn(text)
}

func (l *logger) warn(text string) {
	if !l.limit.Allow() {
		l.dropped.Add(1)
		return
	}
	l.log.Warn("asynq logged", "detail", email.MaskText(text), "dropped", l.dropped.Swap(0))
}

// LogRedis redirects the log of go-redis from stderr to log. The setting is global to the library; main calls it once.
func LogRedis(log *slog.Logger) { redis.SetLogger(redisLogger{newLogger(log)}) }

type redisLogger struct{ *logger }

func (l redisLogger) Printf(_ context.Context, format string, args ...any) {
	l.warn(fmt.Sprintf(format, args...))
}
