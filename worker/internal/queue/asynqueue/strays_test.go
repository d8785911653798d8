package asynqueue_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"email-gateway/shared/email"
	"email-gateway/shared/waittest"
	"email-gateway/worker/internal/queue/asynqueue"
	"email-gateway/worker/internal/queue/queuetest"
	"email-gateway/worker/internal/queue/redistest"
)

// List entries that no worker will ever take are removed; the others stay.
func TestRemoveStrays(t *testing.T) {
	t.Parallel()
	url, prefix := redistest.Shared(t)
	conn := parse(t, url).WithPrefix(prefix)
	publisher := asynqueue.NewPublisher(conn)
	t.Cleanup(func() { _ = publisher.Close() })
	r := conn.Client()
	t.Cleanup(func() { _ = r.Close() })
	ctx, base := t.Context(), "asynq:{"+prefix+email.QueueNormal+"}:"
	leased := func(id string, until time.Duration) error {
		return r.ZAdd(ctx, base+"lease", redis.Z{Score: float64(time.Now().Add(until).Unix()), Member: id}).Err()
	}
	for _, id := range []string{"ready", "in work", "its worker just died", "without a lease", "twice"} {
		publish(t, publisher, id)
	}
	setUp := []error{
		r.LRem(ctx, base+"pending", 0, "in work").Err(), r.LRem(ctx, base+"pending", 0, "its worker just died").Err(), r.LRem(ctx, base+"pending", 0, "without a lease").Err(),
		r.LPush(ctx, base+"active", "in work", "its worker just died", "without a lease", "twice").Err(), leased("in work", 30*time.Second), leased("its worker just died", -time.Minute),
		// Without a message: not taken, just taken, taken long ago, and taken by a worker whose clock was ahead.
		r.LPush(ctx, base+"active", "not taken", "taken", "taken long ago", "taken ahead").Err(), leased("taken", 30*time.Second), leased("taken long ago", -time.Minute), leased("taken ahead", time.Hour),
		r.HSet(ctx, base+"t:taken long ago", "state", "active").Err(),
		r.LPush(ctx, base+"pending", "lost").Err(),
	}
	for i := range 1200 { // more than two pages
		setUp = append(setUp, r.LPush(ctx, base+"active", fmt.Sprint("more", i)).Err())
	}
	if err := errors.Join(setUp...); err != nil {
		t.Fatal(err)
	}
	for _, want := range []int{1206, 0} {
		if n, err := publisher.RemoveStrays(ctx, email.QueueNormal); err != nil || n != want {
			t.Errorf("removed %d, %v; want %d", n, err, want)
		}
	}
	ready, err := publisher.Ready(ctx, email.QueueNormal)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"twice", "ready"}, ready); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"taken", "its worker just died", "in work"}, r.LRange(ctx, base+"active", 0, -1).Val()); diff != "" {
		t.Error(diff)
	}
	if n := r.Exists(ctx, base+"t:without a lease", base+"t:taken long ago").Val(); n != 0 {
		t.Errorf("%d hashes are left", n)
	}
	if diff := cmp.Diff(map[string]int{asynqueue.StrayRemoved: 1206}, publisher.Repairs()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]int{}, publisher.Repairs()); diff != "" {
		t.Error(diff)
	}
}

// A flush deletes the queue's name from the registry; it is restored and reported, but not the
// first time a queue is used.
func TestDepth_RestoresQueueName(t *testing.T) {
	t.Parallel()
	url, prefix := redistest.Shared(t)
	conn := parse(t, url).WithPrefix(prefix)
	publisher := asynqueue.NewPublisher(conn)
	t.Cleanup(func() { _ = publisher.Close() })
	r := conn.Client()
	t.Cleanup(func() { _ = r.Close() })
	name := prefix + email.QueueNormal
	for i, want := range []map[string]int{{}, {}, {asynqueue.QueueRestored: 1}} {
		if i == 2 {
			r.SRem(t.Context(), "asynq:queues", name)
		}
		waittest.Until(t, "the queue's name", func() bool { // checked once a second
			if _, err := queuetest.Depth(t.Context(), publisher, email.QueueNormal); err != nil {
				t.Fatal(err)
			}
			return r.SIsMember(t.Context(), "asynq:queues", name).Val()
		})
		if diff := cmp.Diff(want, publisher.Repairs()); diff != "" {
			t.Error(i, diff)
		}
	}
}
