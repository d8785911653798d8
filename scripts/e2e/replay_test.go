package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"email-gateway/scripts/sessim"
)

// replayView is the api's representation of a replay of dead letters.
type replayView struct {
	ReplayID                       string
	Status                         string
	Matched, Done, Skipped, Failed int
}

func showReplay(s *system, id string) replayView {
	s.t.Helper()
	status, answer := s.call(http.MethodGet, "/v1/dead-letter-replays/"+id, nil, nil)
	var view replayView
	if err := json.Unmarshal(answer, &view); err != nil || status != http.StatusOK {
		s.t.Fatalf("get replay: %d %s", status, answer)
	}
	return view
}

// SES rejects everything permanently. When that is fixed, one request sends all of it again, although a dispatcher is
// killed meanwhile: none is missing and none is sent twice, whatever their number. The queue keeps only 500
// archived tasks.
func TestReplayOfPermanentFailures(t *testing.T) {
	t.Parallel()
	n := 700
	if text := os.Getenv("REPLAY_EMAILS"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.Fatalf("REPLAY_EMAILS: %v", err)
		}
	}
	s := startSystem(t, map[string]string{"WORKER_CONCURRENCY": "64"})
	if err := s.ses.Inject(sessim.Rule{Fault: "message-rejected"}); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	numbers := make(chan int)
	var senders sync.WaitGroup
	for range 32 {
		senders.Go(func() {
			for i := range numbers {
				s.send(fmt.Sprintf("cliente%d@example.com", i), nil)
			}
		})
	}
	for i := range n {
		numbers <- i
	}
	close(numbers)
	senders.Wait()
	s.awaitAll(n, "FAILED")
	s.sentOnce(0)
	t.Logf("%d emails failed after %s; the queue's archive holds %d of them", n, time.Since(start).Round(time.Second), archivedTasks(s))

	s.ses.ClearFaults()
	second := startProgram(t, "dispatcher", s.env)
	start = time.Now()
	status, answer := s.call(http.MethodPost, "/v1/dead-letters/retry", map[string]any{"reason": "SES_MESSAGE_REJECTED", "rate": 500, "note": "SES is mended"}, nil)
	var made replayView
	if err := json.Unmarshal(answer, &made); err != nil || status != http.StatusAccepted || made.Matched != n {
		t.Fatalf("retry: %d %s, want %d matched", status, answer, n)
	}
	eventually(t, func() error {
		if now := showReplay(s, made.ReplayID); now.Done < n/3 {
			return fmt.Errorf("%d of %d so far", now.Done, n)
		}
		return nil
	})
	second.kill()
	eventually(t, func() error {
		if made = showReplay(s, made.ReplayID); made.Status != "COMPLETED" {
			return fmt.Errorf("%+v", made)
		}
		return nil
	})
	if made.Done != n || made.Skipped != 0 || made.Failed != 0 {
		t.Errorf("the replay ended with %+v, want %d done", made, n)
	}
	t.Logf("all were sent again after %s", time.Since(start).Round(time.Second))
	s.awaitAll(n, "SENT")
	s.awaitQuietQueues()
	s.sentOnce(n)
	t.Logf("all were sent after %s", time.Since(start).Round(time.Second))
	for query, want := range map[string]int{
		"SELECT count(*) FROM dead_letters WHERE resolved_at IS NULL":                                                                   0,
		"SELECT count(*) FROM dead_letters WHERE resolution = 'retried' AND replay_id = (SELECT id FROM dead_letter_replays)":           n,
		"SELECT count(*) FROM email_events WHERE type = 'REPLAYED'":                                                                     n,
		"SELECT count(DISTINCT email_log_id) FROM email_events WHERE type = 'REPLAYED'":                                                 n,
		"SELECT count(*) FROM email_outbox WHERE status = 'SENT' AND attempts = 1 AND NOT outcome_unknown AND processed_at IS NOT NULL": n,
	} {
		var got int
		if err := s.db.SQL.QueryRowContext(t.Context(), query).Scan(&got); err != nil || got != want {
			t.Errorf("%s: %d, want %d (%v)", query, got, want, err)
		}
	}
	if out := s.gatewayctl("dlq", "list"); strings.TrimSpace(out) != "No dead letters found." {
		t.Errorf("gatewayctl dlq list: %s", out)
	}
}

// archivedTasks returns how many archived tasks the queues keep.
func archivedTasks(s *system) (n int64) {
	s.t.Helper()
	client := s.redisClient()
	return client.ZCard(s.t.Context(), "asynq:{email:send}:archived").Val()
}

// A single dead letter: rejected, read by an operator, sent again by its tenant; another one is discarded and stays
// unchanged.
func TestReplayOfOne(t *testing.T) {
	t.Parallel()
	s := startSystem(t, nil)
	mended, typo := s.send("ana@example.com", nil), s.send("sim-message-rejected@example.com", nil)
	s.await(mended, "SENT")
	s.await(typo, "FAILED")
	again := s.send("sim-message-rejected-x1@example.com", nil)
	s.await(again, "FAILED")

	deadLetters := make(map[string]string)
	status, answer := s.call(http.MethodGet, "/v1/dead-letters?resolved=false", nil, nil)
	var page struct {
		DeadLetters []struct{ ID, OutboxID string }
	}
	if err := json.Unmarshal(answer, &page); err != nil || status != http.StatusOK || len(page.DeadLetters) != 2 {
		t.Fatalf("list: %d %s", status, answer)
	}
	for _, l := range page.DeadLetters {
		deadLetters[l.OutboxID] = l.ID
	}
	if out := s.gatewayctl("dlq", "show", deadLetters[again]); !strings.Contains(out, "SES_MESSAGE_REJECTED") || strings.Contains(out, "@example.com") {
		t.Errorf("gatewayctl dlq show: %s", out)
	}
	if status, answer := s.call(http.MethodPost, "/v1/dead-letters/"+deadLetters[again]+"/retry", nil, nil); status != http.StatusAccepted {
		t.Fatalf("retry: %d %s", status, answer)
	}
	sent := s.await(again, "SENT")
	if timeline := strings.Join(sent.timeline(), " "); !strings.Contains(timeline, "FAILED REPLAYED RECEIVED") || sent.Attempts != 1 {
		t.Errorf("%d attempts, %s", sent.Attempts, timeline)
	}
	s.gatewayctl("dlq", "discard", "--recipient", "sim-message-rejected@example.com", "--reason", "typo", "--yes")
	if got := s.email(typo); got.Status != "FAILED" {
		t.Errorf("the discarded one is %s", got.Status)
	}
	s.sentOnce(2)
}
