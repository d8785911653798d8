package e2e_test

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"email-gateway/shared/servertest"
	"email-gateway/shared/store/storetest"
)

// A base backup and the archived WAL restore Postgres to a point in time while Redis keeps everything: tasks of
// emails that are PENDING in the database, and tasks of emails that it does not have. Nothing is sent before the
// operator resumes sending, withdrawn emails are not sent again, and the list of possible duplicates, which
// OPERATIONS.md shows how to make, has every email that is sent twice, one that was moved to an earlier time among
// them. A reader of events that has read lost ones sees the new ones.
func TestRestore_PointInTimeBesideNewerRedis(t *testing.T) {
	t.Parallel()
	db, postgres := ownPostgres(t)
	migrate(t, db.URL, "up")
	folders := map[string]string{"BACKUP": t.TempDir(), "LOGS": t.TempDir(), "BASE": t.TempDir(), "WAL": openFolder(t)}
	stop := shipLog(t, db.URL, folders["WAL"])
	s := startSystemOn(t, db, map[string]string{"WORKER_CONCURRENCY": "4"})
	s.runbook("Back up the log", folders)

	for i := range 5 {
		s.await(s.send(fmt.Sprintf("antes%d@cliente.example", i), nil), "SENT")
	}
	moved := s.send("adiantada@cliente.example", func(b map[string]any) {
		b["sendAt"], b["priority"] = time.Now().Add(time.Hour).Format(time.RFC3339), 1
	})
	slowSES(s.t, s.ses, 300)
	for i := range 60 {
		s.send(fmt.Sprintf("espera%d@cliente.example", i), nil)
	}
	s.awaitRequests(12)
	point := databaseTime(s)
	since := s.ses.Summary().Requests
	var after []string
	for i := range 10 {
		after = append(after, s.send(fmt.Sprintf("depois%d@cliente.example", i), func(b map[string]any) { b["priority"] = 1 + 9*(i%2) }))
	}
	s.awaitRequests(since + 30)
	if status, answer := s.call(http.MethodPatch, "/v1/email/"+moved, map[string]any{"sendAt": time.Now().Format(time.RFC3339)}, nil); status != http.StatusOK {
		t.Fatalf("move: %d %s", status, answer)
	}
	s.await(moved, "SENT")
	eventually(t, func() error {
		if !regexp.MustCompile(`(?m)^.*"message":"email moved".*` + moved + `.*"state":"SENT"|^.*"message":"email moved".*"state":"SENT".*` + moved).MatchString(s.worker.logged()) {
			return fmt.Errorf("no line says that the moved email is SENT")
		}
		return nil
	})
	_, cursor := acceptedAfter(s, "latest")
	for _, p := range []*program{s.worker, s.dispatcher, s.api} {
		p.kill()
	}
	stop(s) // the last of the log is shipped
	postgres.Kill()
	logged := keepLogs(s, folders["LOGS"])
	before := acceptedBySES(s.ses)

	restored := servertest.Start(t, "postgres")
	restored.Stop()
	data := filepath.Join(restored.Dir, "postgres", "data")
	owner := ownerOf(t, data)
	if err := os.RemoveAll(data); err != nil {
		t.Fatal(err)
	}
	folders["PGDATA"], folders["POINT"] = data, point
	s.runbook("Restore to a point in time", folders)
	giveTo(t, owner, data, folders["WAL"])
	restored.Start()
	s.db = storetest.Database{URL: restored.URL, SQL: open(t, restored.URL)}
	eventually(t, func() error {
		if storetest.Ask[int](s.t, s.db, "SELECT pg_is_in_recovery()::int") != 0 {
			return fmt.Errorf("the server still recovers")
		}
		return nil
	})
	s.gatewayctl("lane", "pause", "--all", "--reason", "the operator paused sending before POINT")
	s.runbook("Hold emails that may be sent twice", folders)
	listed := fileOf(s, folders["BACKUP"], "waiting")
	if !strings.Contains(listed, moved) {
		t.Errorf("%s was moved to an earlier time and sent, and is not in the list of what may be sent twice", moved)
	}

	s.env["DATABASE_URL"] = s.db.URL
	s.api, s.dispatcher, s.worker = startProgram(t, "api", s.env), startProgram(t, "dispatcher", s.env), startProgram(t, "worker", s.env)
	late := s.send("nova@cliente.example", nil)
	awaitNoActiveTasks(s)
	if got := acceptedBySES(s.ses); len(got) != len(before) {
		t.Errorf("SES accepted %d emails while sending was held, %d before", len(got), len(before))
	}
	slowSES(s.t, s.ses, 0)
	s.runbook("What came after the dump", folders)
	s.await(late, "SENT")
	eventually(t, func() error { // an event has its position some 200 ms after its commit
		if accepted, _ := acceptedAfter(s, cursor); !slices.Contains(accepted, late) {
			return fmt.Errorf("a reader that had read the lost events sees the acceptance of %v, and not of %s", accepted, late)
		}
		return nil
	})
	eventually(t, func() error {
		if open := storetest.Ask[int](s.t, s.db, "SELECT count(*) FROM email_outbox WHERE processed_at IS NULL"); open != 0 {
			return fmt.Errorf("%d emails are not final: %s", open, s.statusCounts())
		}
		return nil
	})
	s.awaitQuietQueues()
	checkSentOnceExcept(s, before, logged, 10)
	now := acceptedBySES(s.ses)
	for id, times := range now {
		if times > 1 && !strings.Contains(listed, id) {
			t.Errorf("%s was sent %d times, and is not in the list of what may be", id, times)
		}
	}
	for _, id := range after {
		if now[id] != before[id] {
			t.Errorf("%s, accepted after the point in time, was sent from its task in Redis alone", id)
		}
		if status, _ := s.call(http.MethodGet, "/v1/email/"+id, nil, nil); status != http.StatusNotFound {
			t.Errorf("an email from after the point in time: %d", status)
		}
	}
}

// Redis is restored from an older copy while Postgres is newer: its tasks are of emails that have been sent since.
// None of them is sent again, and emails accepted later are sent.
func TestRestore_OlderRedis(t *testing.T) {
	t.Parallel()
	s := startSystem(t, map[string]string{"WORKER_CONCURRENCY": "4"})
	slowSES(s.t, s.ses, 200)
	const emails = 40
	for i := range emails {
		s.send(fmt.Sprintf("pessoa%d@cliente.example", i), nil)
	}
	s.awaitRequests(4)
	log, older := filepath.Join(s.redis.Dir, "redis", "appendonlydir"), filepath.Join(t.TempDir(), "older")
	copyOf(t, log, older) // as a backup of a running server would
	slowSES(s.t, s.ses, 0)
	s.awaitAll(emails, "SENT")
	for _, p := range []*program{s.worker, s.dispatcher, s.api} {
		p.kill()
	}
	s.redis.Kill()
	if err := os.RemoveAll(log); err != nil {
		t.Fatal(err)
	}
	copyOf(t, older, log)
	s.redis.Start()
	if tasks := s.redisClient().DBSize(t.Context()).Val(); tasks < emails/2 {
		t.Fatalf("the copy of Redis has %d keys: it is not of the moment before the emails were sent", tasks)
	}

	s.api, s.dispatcher, s.worker = startProgram(t, "api", s.env), startProgram(t, "dispatcher", s.env), startProgram(t, "worker", s.env)
	s.await(s.send("nova@cliente.example", nil), "SENT")
	s.awaitQuietQueues() // tasks that were active when the copy was made return as retries
	s.sentOnce(emails + 1)
	if n := storetest.Ask[int](s.t, s.db, "SELECT count(*) FROM email_outbox WHERE status <> 'SENT'"); n != 0 {
		t.Errorf("%d emails are not SENT any more: %s", n, s.statusCounts())
	}
}

// shipLog receives the server's WAL as it is written. stop waits until it is complete.
func shipLog(t *testing.T, databaseURL, folder string) (stop func(*system)) {
	t.Helper()
	receive := startOther(t, os.Environ(), "pg_receivewal", "--dbname="+databaseURL, "--directory="+folder, "--synchronous")
	return func(s *system) {
		t.Helper()
		eventually(t, func() error {
			if storetest.Ask[int](s.t, s.db, "SELECT count(*) FROM pg_stat_replication WHERE application_name = 'pg_receivewal' AND flush_lsn >= pg_current_wal_lsn()") != 1 {
				return fmt.Errorf("not all of the log is shipped: %s", receive.tail())
			}
			return nil
		})
	}
}

// acceptedAfter returns the emails that GET /v1/events shows as accepted after the cursor, at most 100, and the next cursor.
func acceptedAfter(s *system, after string) (emails []string, next string) {
	s.t.Helper()
	status, answer := s.call(http.MethodGet, "/v1/events?types=RECEIVED&limit=100&after="+after, nil, nil)
	var page struct {
		Events     []struct{ OutboxID string }
		NextCursor string
	}
	if err := json.Unmarshal(answer, &page); err != nil || status != http.StatusOK {
		s.t.Fatalf("events after %s: %d %s", after, status, answer)
	}
	for _, e := range page.Events {
		emails = append(emails, e.OutboxID)
	}
	return emails, page.NextCursor
}

// databaseTime returns Postgres's time, after which everything later is committed, as an operator east of UTC writes it.
func databaseTime(s *system) (now string) {
	s.t.Helper()
	if err := s.db.SQL.QueryRowContext(s.t.Context(), `SELECT to_char(clock_timestamp() AT TIME ZONE interval '2 hours', 'YYYY-MM-DD"T"HH24:MI:SS.US"+02"')`).Scan(&now); err != nil {
		s.t.Fatal(err)
	}
	return now
}

// awaitNoActiveTasks waits until no task is active, which means that those in Redis were handled. asynq finds the
// tasks of a killed worker 30 s after the end of their lease of 30 s, in a round once a minute.
func awaitNoActiveTasks(s *system) {
	s.t.Helper()
	client := s.redisClient()
	eventually(s.t, func() error {
		for _, queue := range []string{"email:send:high", "email:send", "email:send:low"} {
			for _, list := range []string{"pending", "active"} {
				if n := client.LLen(s.t.Context(), "asynq:{"+queue+"}:"+list).Val(); n > 0 {
					return fmt.Errorf("%d tasks of %s are %s", n, queue, list)
				}
			}
		}
		return nil
	})
}

func fileOf(s *system, folder, name string) string {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, name))
	if err != nil {
		s.t.Fatal(err)
	}
	return string(text)
}

func open(t *testing.T, databaseURL string) *sql.DB {
	t.Helper()
	db, err := sql.Open("postgres", databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}
