package e2e_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"email-gateway/scripts/sessim"
	"email-gateway/shared/store/storetest"
)

// redisClient returns the test's own connection to the queue.
func (s *system) redisClient() *redis.Client {
	s.t.Helper()
	o, err := redis.ParseURL(s.redis.URL)
	if err != nil {
		s.t.Fatal(err)
	}
	client := redis.NewClient(o)
	s.t.Cleanup(func() { _ = client.Close() })
	return client
}

// inStatus waits until n emails have the status.
func inStatus(s *system, n int, status string) {
	s.t.Helper()
	s.awaitAll(n, status)
}

// Redis is flushed while emails are being sent, wait for their retry, and are queued. All are sent once.
func TestRedisFlushed(t *testing.T) {
	t.Parallel()
	const inWork, retries, queued = 5, 10, 10
	s := startSystem(t, map[string]string{"WORKER_CONCURRENCY": "5", "RESCUE_AFTER": "2s", "EMAIL_BACKOFF": "20s"})
	if err := s.ses.Inject(sessim.Rule{Fault: "throttle", Times: retries}); err != nil {
		t.Fatal(err)
	}
	for i := range retries {
		s.send(fmt.Sprintf("depois%d@example.com", i), nil)
	}
	inStatus(s, retries, "RETRY_SCHEDULED")
	slowSES(s.t, s.ses, 4000)
	for i := range inWork {
		s.send(fmt.Sprintf("agora%d@example.com", i), nil)
	}
	s.awaitRequests(retries + inWork)
	s.setSending(false) // the flush forgets this too
	for i := range queued {
		s.send(fmt.Sprintf("logo%d@example.com", i), nil)
	}
	inStatus(s, queued, "ENQUEUED")
	if err := s.redisClient().FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	t.Logf("flushed with %s", s.statusCounts())
	slowSES(s.t, s.ses, 0)
	s.awaitAll(inWork+retries+queued, "SENT")
	s.awaitQuietQueues()
	s.sentOnce(inWork + retries + queued)
}

// Redis is out of memory for 10 s while emails are sent. Accepted emails wait, the results of active tasks are
// recorded, and nothing is sent twice although the queue delivers tasks again.
func TestRedisFull(t *testing.T) {
	t.Parallel()
	const before, during = 40, 40
	s := startSystem(t, map[string]string{"WORKER_CONCURRENCY": "16"})
	slowSES(s.t, s.ses, 300)
	for i := range before {
		s.send(fmt.Sprintf("antes%d@example.com", i), nil)
	}
	s.awaitRequests(10)
	client := s.redisClient()
	if err := client.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	full := time.Now()
	for i := range during {
		s.send(fmt.Sprintf("durante%d@example.com", i), nil)
	}
	<-time.After(time.Until(full.Add(10 * time.Second))) // the fault itself
	if waiting := storetest.Ask[int](s.t, s.db, "SELECT count(*) FROM email_outbox WHERE status = 'PENDING'"); waiting < during {
		t.Errorf("%d emails wait, want the %d accepted while Redis was full: %s", waiting, during, s.statusCounts())
	}
	if err := client.ConfigSet(t.Context(), "maxmemory", "0").Err(); err != nil {
		t.Fatal(err)
	}
	s.awaitAll(before+during, "SENT")
	s.awaitQuietQueues()
	s.sentOnce(before + during)
}

// Redis executes every enqueue and its responses are lost, so the dispatcher knows of none. Tasks that are handled
// meanwhile are not enqueued again, and those that are still queued are found.
func TestEnqueueAnswerLost(t *testing.T) {
	t.Parallel()
	s := startSystem(t, nil)
	s.dispatcher.stop()
	proxy, throughProxy := startLossyProxy(t, s.redis.URL, `"outboxId"`)
	s.dispatcher = startProgram(t, "dispatcher", s.env, map[string]string{"REDIS_URL": throughProxy})
	s.await(s.send("ana@example.com", nil), "SENT")

	const n = 30
	proxy.losing.Store(true)
	for i := range n {
		s.send(fmt.Sprintf("cliente%d@example.com", i), nil)
	}
	s.awaitAll(1+n, "SENT")
	if proxy.lost.Load() == 0 {
		t.Error("no answer was lost")
	}

	// This time no worker runs: when the dispatcher gets responses again, it finds the queued tasks and makes no
	// others.
	s.setSending(false)
	for i := range n {
		s.send(fmt.Sprintf("outro%d@example.com", i), nil)
	}
	client := s.redisClient()
	eventually(t, func() error {
		if queued := client.LLen(t.Context(), "asynq:{email:send}:pending").Val(); queued < n {
			return fmt.Errorf("%d tasks are queued", queued)
		}
		return nil
	})
	proxy.losing.Store(false)
	inStatus(s, n, "ENQUEUED")
	// go-redis repeats unanswered commands, so a task of an email that was sent meanwhile may be left.
	eventually(t, func() error {
		queued := client.LRange(t.Context(), "asynq:{email:send}:pending", 0, -1).Val()
		if waiting := storetest.Ask[int](s.t, s.db, "SELECT count(*) FROM email_outbox WHERE status = 'ENQUEUED' AND id::text = ANY ('{"+strings.Join(queued, ",")+"}')"); waiting != n {
			return fmt.Errorf("%d of %d emails have a task", waiting, n)
		}
		return nil
	})
	s.setSending(true)
	s.awaitAll(1+2*n, "SENT")
	s.awaitQuietQueues()
	s.sentOnce(1 + 2*n)
}

// The queue's archive has a maximum size and drops the oldest task silently. No dead letter is lost by that, and an
// email whose task was dropped can be sent again.
func TestArchiveOverflows(t *testing.T) {
	t.Parallel()
	const capacity, failed = 10_000, 6
	s := startSystem(t, nil)
	if err := s.ses.Inject(sessim.Rule{Fault: "message-rejected", Match: sessim.Match{To: "@perdido.example"}}); err != nil {
		t.Fatal(err)
	}
	first := s.send("primeira@perdido.example", nil)
	s.await(first, "FAILED")
	client, base := s.redisClient(), "asynq:{email:send}:"
	eventually(t, func() error { return client.ZScore(t.Context(), base+"archived", first).Err() })
	overfillArchive(s, client, base, capacity+50)
	for i := range failed - 1 {
		s.await(s.send(fmt.Sprintf("cliente%d@perdido.example", i), nil), "FAILED")
	}
	eventually(t, func() error {
		n, err := client.ZCard(t.Context(), base+"archived").Result()
		if err == nil && n >= capacity {
			err = fmt.Errorf("the archive holds %d tasks", n)
		}
		return err
	})
	if err := client.ZScore(t.Context(), base+"archived", first).Err(); !errors.Is(err, redis.Nil) {
		t.Fatalf("the first failure is still in the archive: %v", err)
	}

	if n := storetest.Ask[int](s.t, s.db, "SELECT count(*) FROM dead_letters WHERE resolved_at IS NULL"); n != failed {
		t.Errorf("%d dead letters, want %d", n, failed)
	}
	s.ses.ClearFaults()
	if status, answer := s.call(http.MethodPost, "/v1/email/"+first+"/retry", nil, nil); status >= 300 {
		t.Errorf("retry: %d %s", status, answer)
	}
	s.await(first, "SENT")
	s.await(s.send("ana@example.com", nil), "SENT")
	if n := storetest.Ask[int](s.t, s.db, "SELECT count(*) FROM dead_letters WHERE resolved_at IS NULL"); n != failed-1 {
		t.Errorf("%d dead letters are open, want %d", n, failed-1)
	}
	s.sentOnce(2)
}

// overfillArchive puts n tasks into the archive, all newer than the existing ones.
func overfillArchive(s *system, client *redis.Client, base string, n int) {
	s.t.Helper()
	pipe := client.Pipeline()
	for i := range n {
		id := fmt.Sprintf("filler-%d", i)
		pipe.ZAdd(s.t.Context(), base+"archived", redis.Z{Score: float64(time.Now().Unix() + 1), Member: id})
		pipe.HSet(s.t.Context(), base+"t:"+id, "msg", "", "state", "archived")
	}
	if _, err := pipe.Exec(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
}
