package main

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"email-gateway/shared/store/storetest"
)

// TestKill: an api that is killed under load has stored every accepted email completely.
func TestKill(t *testing.T) {
	t.Parallel()
	const kills, clients = 20, 24
	d := storetest.New(t)
	_, key := newKey(t, d)
	binary := build(t)
	promised := map[string]bool{}
	for range kills {
		for _, id := range loadAndKill(t, binary, d.URL, key, clients) {
			promised[id] = true
		}
	}
	if len(promised) < kills {
		t.Errorf("only %d emails were accepted before the kill, too few for the test", len(promised))
	}
	stored := storedEmails(t, d.SQL)
	t.Logf("%d accepted with 202, %d stored", len(promised), len(stored))
	for id := range promised {
		if !stored[id] {
			t.Errorf("email %s was accepted with 202 and is not stored", id)
		}
	}
}

func build(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "api")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return binary
}

// loadAndKill runs the api under load, kills it after a random time, and returns the ids of its
// 202 responses.
func loadAndKill(t *testing.T, binary, databaseURL, key string, clients int) []string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	program := exec.CommandContext(ctx, binary)
	program.Env = append(os.Environ(), environ(t, databaseURL, "RABBITMQ_URL=")...)
	log, err := program.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	program.Stderr = t.Output()
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	addr := listening(t, log, "api")

	var mu sync.Mutex
	var ids []string
	first := make(chan struct{})
	var once sync.Once
	var all sync.WaitGroup
	for c := range clients {
		all.Go(func() {
			for n := 0; ; n++ {
				id, err := postKeyed(ctx, addr, key, fmt.Sprintf("%s-%d-%d", addr, c, n))
				if err != nil {
					return // the api was killed
				}
				once.Do(func() { close(first) })
				mu.Lock()
				ids = append(ids, id)
				mu.Unlock()
			}
		})
	}
	select {
	case <-first:
	case <-time.After(3 * time.Minute):
		t.Fatal("nothing was accepted in 3 minutes")
	}
	<-time.After(rand.N(120 * time.Millisecond))
	if err := program.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = program.Wait()
	all.Wait()
	return ids
}

// postKeyed returns the id of the 202. Any other status is a failure.
func postKeyed(ctx context.Context, addr, key, idempotencyKey string) (string, error) {
	status, body, err := postWith(ctx, addr, key, idempotencyKey)
	if err != nil {
		return "", err
	}
	if status != http.StatusAccepted {
		return "", fmt.Errorf("%d %s", status, body)
	}
	var answer struct{ OutboxID string }
	err = json.Unmarshal([]byte(body), &answer)
	return answer.OutboxID, err
}

// storedEmails reads every row and checks that it is complete.
func storedEmails(t *testing.T, db *sql.DB) map[string]bool {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), `SELECT o.id, o.status, o.html, o.html_sha256, o.payload ->> 'outboxId', o.payload ->> 'to',
		o.request_id, l.queue, k.status, convert_from(k.answer, 'UTF8')::json ->> 'outboxId'
		FROM email_outbox o LEFT JOIN dispatch_lanes l ON l.id = o.lane_id LEFT JOIN idempotency_keys k ON k.outbox_id = o.id`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	stored := map[string]bool{}
	for rows.Next() {
		var id, status, html, inPayload, to, requestID string
		var sum []byte
		var queue, answered sql.NullString
		var answerStatus sql.NullInt64
		if err := rows.Scan(&id, &status, &html, &sum, &inPayload, &to, &requestID, &queue, &answerStatus, &answered); err != nil {
			t.Fatal(err)
		}
		want := sha256.Sum256([]byte(html))
		if status != "PENDING" || string(sum) != string(want[:]) || inPayload != id || to != "ana@example.com" || requestID == "" ||
			queue.String != "email:send" || answerStatus.Int64 != http.StatusAccepted || answered.String != id {
			t.Errorf("email %s is incomplete", id)
		}
		stored[id] = true
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	var orphans int
	err = db.QueryRowContext(t.Context(), `SELECT count(*) FROM idempotency_keys k WHERE NOT EXISTS (SELECT FROM email_outbox o WHERE o.id = k.outbox_id)`).Scan(&orphans)
	if err != nil || orphans > 0 {
		t.Errorf("%d keys without email (%v)", orphans, err)
	}
	return stored
}
