package asynqueue_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"email-gateway/shared/email"
	"email-gateway/worker/internal/queue/asynqueue"
	"email-gateway/worker/internal/queue/redistest"
)

// A task of an erased person is removed in any state but active; of an email that may still be sent
// only an archived or completed task is removed.
func TestRemoveTasks(t *testing.T) {
	t.Parallel()
	const id, missing = "00000000-0000-7000-8000-000000000001", "00000000-0000-7000-8000-000000000002"
	in := func(set string) func(context.Context, redis.UniversalClient, string) error {
		return func(ctx context.Context, r redis.UniversalClient, base string) error {
			return moveTo(ctx, r, base, id, set)
		}
	}
	for name, tt := range map[string]struct {
		put          func(ctx context.Context, r redis.UniversalClient, base string) error
		all, removed bool
	}{
		"archived":         {in("archived"), false, true},
		"archived, all":    {in("archived"), true, true},
		"completed":        {in("completed"), false, true},
		"for a retry":      {in("retry"), false, false},
		"for a retry, all": {in("retry"), true, true},
		"scheduled, all":   {in("scheduled"), true, true},
		"ready":            {func(context.Context, redis.UniversalClient, string) error { return nil }, false, false},
		"ready, all":       {func(context.Context, redis.UniversalClient, string) error { return nil }, true, true},
		"in work, all": {func(ctx context.Context, r redis.UniversalClient, base string) error {
			return taken(ctx, r, base, id, time.Now().Add(30*time.Second))
		}, true, false},
		"left in work, all": {func(ctx context.Context, r redis.UniversalClient, base string) error {
			return taken(ctx, r, base, id, time.Now().Add(-time.Minute))
		}, true, true},
		"in work of a worker whose clock was ahead, all": {func(ctx context.Context, r redis.UniversalClient, base string) error {
			return taken(ctx, r, base, id, time.Now().Add(time.Hour))
		}, true, true},
		"in no list, all": {func(ctx context.Context, r redis.UniversalClient, base string) error {
			return r.Del(ctx, base+"pending").Err()
		}, true, true},
		"archived by id only": {func(ctx context.Context, r redis.UniversalClient, base string) error {
			if err := moveTo(ctx, r, base, id, "archived"); err != nil {
				return err
			}
			return r.Del(ctx, base+"t:"+id).Err()
		}, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, prefix := redistest.Shared(t)
			conn := parse(t, url).WithPrefix(prefix)
			publisher := asynqueue.NewPublisher(conn)
			t.Cleanup(func() { _ = publisher.Close() })
			r := conn.Client()
			t.Cleanup(func() { _ = r.Close() })
			base := "asynq:{" + prefix + email.QueueNormal + "}:"
			publish(t, publisher, id)
			if err := tt.put(t.Context(), r, base); err != nil {
				t.Fatal(err)
			}
			removed, kept, err := publisher.RemoveTasks(t.Context(), email.QueueNormal, []string{missing, id}, tt.all)
			if err != nil || !slices.Equal(removed, []bool{false, tt.removed}) || !slices.Equal(kept, []bool{false, !tt.removed}) {
				t.Errorf("removed %v, kept %v (%v)", removed, kept, err)
			}
			left, err := r.Exists(t.Context(), base+"t:"+id).Result()
			if err != nil || (left == 0) != tt.removed {
				t.Errorf("%d hashes of the task (%v)", left, err)
			}
			for _, set := range []string{"archived", "retry", "scheduled", "completed"} {
				if n := r.ZCard(t.Context(), base+set).Val(); tt.removed && n != 0 {
					t.Errorf("%d tasks in %s", n, set)
				}
			}
		})
	}
}
