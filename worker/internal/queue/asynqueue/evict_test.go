package asynqueue_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"email-gateway/shared/email"
	"email-gateway/worker/internal/queue"
	"email-gateway/worker/internal/queue/asynqueue"
	"email-gateway/worker/internal/queue/redistest"
)

// The rest of a task after a crash or a data loss either reaches a worker or is removed.
func TestEvict(t *testing.T) {
	t.Parallel()
	const id = "00000000-0000-7000-8000-000000000001"
	for name, tt := range map[string]struct {
		breakIt func(ctx context.Context, r redis.UniversalClient, base string) error
		want    queue.Found
	}{
		"ready": {func(context.Context, redis.UniversalClient, string) error { return nil }, queue.Kept},
		"flushed": {func(ctx context.Context, r redis.UniversalClient, base string) error {
			return r.Del(ctx, base+"t:"+id, base+"pending").Err()
		}, queue.Missing},
		"hash only": {func(ctx context.Context, r redis.UniversalClient, base string) error {
			return r.Del(ctx, base+"pending").Err()
		}, queue.Leftover},
		"list only": {func(ctx context.Context, r redis.UniversalClient, base string) error {
			return r.Del(ctx, base+"t:"+id).Err()
		}, queue.Leftover},
		"archived": {func(ctx context.Context, r redis.UniversalClient, base string) error {
			return moveTo(ctx, r, base, id, "archived")
		}, queue.Leftover},
		"for a retry": {func(ctx context.Context, r redis.UniversalClient, base string) error {
			return moveTo(ctx, r, base, id, "retry")
		}, queue.Kept},
		"for a retry, by a worker whose clock was an hour ahead": {func(ctx context.Context, r redis.UniversalClient, base string) error {
			return errors.Join(moveTo(ctx, r, base, id, "retry"),
				r.ZAdd(ctx, base+"retry", redis.Z{Score: float64(time.Now().Add(time.Hour).Unix()), Member: id}).Err())
		}, queue.Leftover},
		"in work": {func(ctx context.Context, r redis.UniversalClient, base string) error {
			return taken(ctx, r, base, id, time.Now().Add(30*time.Second))
		}, queue.Kept},
		"in work of a worker whose clock is a little ahead": {func(ctx context.Context, r redis.UniversalClient, base string) error {
			return taken(ctx, r, base, id, time.Now().Add(35*time.Second))
		}, queue.Kept},
		"in work of a worker whose clock was an hour ahead": {func(ctx context.Context, r redis.UniversalClient, base string) error {
			return taken(ctx, r, base, id, time.Now().Add(time.Hour))
		}, queue.Leftover},
		"in work, its lease just over": {func(ctx context.Context, r redis.UniversalClient, base string) error {
			return taken(ctx, r, base, id, time.Now())
		}, queue.Kept},
		"in work, its lease long over": {func(ctx context.Context, r redis.UniversalClient, base string) error {
			return taken(ctx, r, base, id, time.Now().Add(-10*time.Second))
		}, queue.Leftover},
		"in work without a lease": {func(ctx context.Context, r redis.UniversalClient, base string) error {
			return r.LMove(ctx, base+"pending", base+"active", "RIGHT", "LEFT").Err()
		}, queue.Leftover},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, prefix := redistest.Shared(t)
			conn := parse(t, url).WithPrefix(prefix)
			publisher := asynqueue.NewPublisher(conn)
			t.Cleanup(func() { _ = publisher.Close() })
			publish(t, publisher, id)
			r := conn.Client()
			t.Cleanup(func() { _ = r.Close() })
			base := "asynq:{" + prefix + email.QueueNormal + "}:"
			if err := tt.breakIt(t.Context(), r, base); err != nil {
				t.Fatal(err)
			}
			found, err := publisher.Evict(t.Context(), email.QueueNormal, id)
			if err != nil || found != tt.want {
				t.Fatalf("found %v, %v; want %v", found, err, tt.want)
			}
			// Another dispatcher that asks at the same time gets the same answer.
			if again, err := publisher.Evict(t.Context(), email.QueueNormal, id); err != nil || again != found {
				t.Fatalf("asked again: %v, %v; want %v", again, err, found)
			}
			if found == queue.Kept {
				return
			}
			publish(t, publisher, id)
			taken := make(chan string, 2)
			consume(t, conn, func(_ context.Context, task queue.Task) error { taken <- task.ID; return nil })
			receive(t, taken)
		})
	}
}

// taken makes the task active with a lease until then.
func taken(ctx context.Context, r redis.UniversalClient, base, id string, lease time.Time) error {
	return errors.Join(r.LMove(ctx, base+"pending", base+"active", "RIGHT", "LEFT").Err(),
		r.HSet(ctx, base+"t:"+id, "state", "active").Err(),
		r.ZAdd(ctx, base+"lease", redis.Z{Score: float64(lease.Unix()), Member: id}).Err())
}

func moveTo(ctx context.Context, r redis.UniversalClient, base, id, set string) error {
	return errors.Join(r.LRem(ctx, base+"pending", 0, id).Err(),
		r.ZAdd(ctx, base+set, redis.Z{Score: float64(time.Now().Add(30 * time.Second).Unix()), Member: id}).Err(),
		r.HSet(ctx, base+"t:"+id, "state", set).Err())
}

func TestCleanArchive(t *testing.T) {
	t.Parallel()
	url, prefix := redistest.Shared(t)
	conn := parse(t, url).WithPrefix(prefix)
	publisher := asynqueue.NewPublisher(conn)
	t.Cleanup(func() { _ = publisher.Close() })
	r := conn.Client()
	t.Cleanup(func() { _ = r.Close() })
	base := "asynq:{" + prefix + email.QueueNormal + "}:"
	for i, age := range []time.Duration{8 * 24 * time.Hour, 6 * 24 * time.Hour} {
		id := fmt.Sprint("t", i)
		err := errors.Join(r.ZAdd(t.Context(), base+"archived", redis.Z{Score: float64(time.Now().Add(-age).Unix()), Member: id}).Err(),
			r.HSet(t.Context(), base+"t:"+id, "state", "archived").Err())
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []int{1, 0} {
		if n, err := publisher.CleanArchive(t.Context(), email.QueueNormal, 7*24*time.Hour); err != nil || n != want {
			t.Errorf("deleted %d, %v; want %d", n, err, want)
		}
	}
	if n := r.Exists(t.Context(), base+"t:t0", base+"t:t1").Val(); n != 1 {
		t.Errorf("%d hashes are left", n)
	}
}

// The newest archived tasks stay, and each call deletes a bounded number of the older ones, with their payloads. Two dispatchers
// that trim at the same time delete no more than that.
func TestTrimArchive(t *testing.T) {
	t.Parallel()
	const tasks, kept = 1203, 100
	url, prefix := redistest.Shared(t)
	conn := parse(t, url).WithPrefix(prefix)
	r := conn.Client()
	t.Cleanup(func() { _ = r.Close() })
	base := "asynq:{" + prefix + email.QueueNormal + "}:"
	pipe := r.Pipeline()
	for i := range tasks {
		id := fmt.Sprint("t", i)
		pipe.ZAdd(t.Context(), base+"archived", redis.Z{Score: float64(1_700_000_000 + i), Member: id})
		pipe.HSet(t.Context(), base+"t:"+id, "state", "archived")
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	var group errgroup.Group
	var deleted, most atomic.Int64
	for range 2 {
		publisher := asynqueue.NewPublisher(conn)
		t.Cleanup(func() { _ = publisher.Close() })
		group.Go(func() error {
			for range 2 * tasks {
				n, err := publisher.TrimArchive(t.Context(), email.QueueNormal, kept)
				if err != nil {
					return err
				}
				most.Store(max(most.Load(), int64(n)))
				if deleted.Add(int64(n)) >= tasks-kept {
					return nil
				}
			}
			return errors.New("the archive is not trimmed")
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	if deleted.Load() != tasks-kept || most.Load() > 500 {
		t.Errorf("deleted %d, at most %d per call", deleted.Load(), most.Load())
	}
	left := r.ZRange(t.Context(), base+"archived", 0, -1).Val()
	if len(left) != kept || left[0] != fmt.Sprint("t", tasks-kept) {
		t.Errorf("%d are left, the oldest is %s", len(left), left[0])
	}
	if n := len(r.Keys(t.Context(), "asynq:{"+prefix+"*}:t:*").Val()); n != kept {
		t.Errorf("%d payloads are left", n)
	}
}

// An email whose worker was killed can be enqueued again as soon as the worker's lease is over.
func TestPublish_ReplacesDeadWorkersTask(t *testing.T) {
	t.Parallel()
	const id = "00000000-0000-7000-8000-000000000002"
	for name, tt := range map[string]struct {
		lease time.Duration
		want  queue.Placed
	}{
		"alive":                     {30 * time.Second, queue.Busy},
		"dead":                      {-10 * time.Second, queue.Replaced},
		"dead, its clock was ahead": {time.Hour, queue.Replaced},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, prefix := redistest.Shared(t)
			conn := parse(t, url).WithPrefix(prefix)
			publisher := asynqueue.NewPublisher(conn)
			t.Cleanup(func() { _ = publisher.Close() })
			publish(t, publisher, id)
			r := conn.Client()
			t.Cleanup(func() { _ = r.Close() })
			if err := taken(t.Context(), r, "asynq:{"+prefix+email.QueueNormal+"}:", id, time.Now().Add(tt.lease)); err != nil {
				t.Fatal(err)
			}
			placed, err := publisher.Publish(t.Context(), queue.Task{ID: id, Queue: email.QueueNormal, Payload: []byte("{}")})
			if err != nil || placed != tt.want {
				t.Errorf("placed %v, %v; want %v", placed, err, tt.want)
			}
		})
	}
}

// A hash that a crash left outside all lists, whatever its state field says, does not block its id.
func TestPublish_ReplacesHashInNoList(t *testing.T) {
	t.Parallel()
	const id = "00000000-0000-7000-8000-000000000003"
	for _, state := range []string{"archived", "retry", "scheduled", "completed", "pending", "active", "", "nonsense"} {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			url, prefix := redistest.Shared(t)
			conn := parse(t, url).WithPrefix(prefix)
			publisher := asynqueue.NewPublisher(conn)
			t.Cleanup(func() { _ = publisher.Close() })
			publish(t, publisher, id)
			r := conn.Client()
			t.Cleanup(func() { _ = r.Close() })
			base := "asynq:{" + prefix + email.QueueNormal + "}:"
			if err := errors.Join(r.Del(t.Context(), base+"pending").Err(), r.HSet(t.Context(), base+"t:"+id, "state", state).Err()); err != nil {
				t.Fatal(err)
			}
			publish(t, publisher, id)
			if diff := cmp.Diff(map[string]int{asynqueue.TaskReplaced: 1}, publisher.Repairs()); diff != "" {
				t.Error(diff)
			}
			taken := make(chan string, 2)
			consume(t, conn, func(_ context.Context, task queue.Task) error { taken <- task.ID; return nil })
			receive(t, taken)
		})
	}
}

// A task that was enqueued again since the archive was listed is not deleted.
func TestCleanArchive_OnlyArchivedTasks(t *testing.T) {
	t.Parallel()
	const id = "00000000-0000-7000-8000-000000000004"
	url, prefix := redistest.Shared(t)
	conn := parse(t, url).WithPrefix(prefix)
	publisher := asynqueue.NewPublisher(conn)
	t.Cleanup(func() { _ = publisher.Close() })
	r := conn.Client()
	t.Cleanup(func() { _ = r.Close() })
	base := "asynq:{" + prefix + email.QueueNormal + "}:"
	publish(t, publisher, id)
	old := redis.Z{Score: float64(time.Now().Add(-8 * 24 * time.Hour).Unix()), Member: id}
	if err := errors.Join(moveTo(t.Context(), r, base, id, "archived"), r.ZAdd(t.Context(), base+"archived", old).Err()); err != nil {
		t.Fatal(err)
	}
	cleaner := asynqueue.NewPublisher(conn)
	t.Cleanup(func() { _ = cleaner.Close() })
	cleaner.Intercept(listed(func() { publish(t, publisher, id) }))
	if n, err := cleaner.CleanArchive(t.Context(), email.QueueNormal, 7*24*time.Hour); err != nil || n != 0 {
		t.Errorf("deleted %d, %v", n, err)
	}
	taken := make(chan string, 2)
	consume(t, conn, func(_ context.Context, task queue.Task) error { taken <- task.ID; return nil })
	receive(t, taken)
}

// listed is called after each listing of archived tasks.
type listed func()

func (l listed) DialHook(next redis.DialHook) redis.DialHook { return next }

func (l listed) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (l listed) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if cmd.Name() == "zrangebyscore" {
			l()
		}
		return err
	}
}
