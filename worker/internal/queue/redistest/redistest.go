// Package redistest provides a test with its own prefix on the shared Redis, or with a private server that it may stop, kill
// and freeze. Only tests use it.
package redistest

import (
	"context"
	"os"
	"testing"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"email-gateway/shared/servertest"
)

// Shared returns the URL of the shared server, and a prefix for this test's queues, whose keys are
// deleted when the test ends. It needs REDIS_URL; without it the test fails.
func Shared(tb testing.TB) (url, prefix string) {
	tb.Helper()
	url = os.Getenv("REDIS_URL")
	if url == "" {
		tb.Fatal("REDIS_URL is not set: run the tests through ./scripts/test.sh")
	}
	prefix = "test-" + uuid.NewString() + ":"
	tb.Cleanup(func() { clean(tb, url, prefix) })
	return url, prefix
}

func clean(tb testing.TB, url, prefix string) {
	o, err := redis.ParseURL(url)
	if err != nil {
		tb.Errorf("read REDIS_URL: %v", err)
		return
	}
	client := redis.NewClient(o)
	defer func() { _ = client.Close() }()
	ctx := context.Background() // the test's context has ended
	keys := client.Scan(ctx, 0, "asynq:{"+prefix+"*", 1000).Iterator()
	deletions := client.Pipeline()
	for keys.Next(ctx) {
		deletions.Unlink(ctx, keys.Val())
	}
	if _, err := deletions.Exec(ctx); err != nil {
		tb.Errorf("clean up redis: %v", err)
	}
	names := client.SScan(ctx, "asynq:queues", 0, prefix+"*", 1000).Iterator()
	for names.Next(ctx) {
		client.SRem(ctx, "asynq:queues", names.Val())
	}
	if err := keys.Err(); err != nil {
		tb.Errorf("clean up redis: %v", err)
	}
}

// Start starts a private Redis with the settings that the gateway requires.
func Start(tb testing.TB) *servertest.Server {
	tb.Helper()
	return servertest.Start(tb, "redis")
}
