package e2e_test

import (
	"database/sql"
	"fmt"
	"os"
	"testing"
	"time"

	"email-gateway/scripts/sessim"
)

// Another session locks two queued emails, the recipient of a third and a fourth that is being sent. All others are
// sent as fast as without the locks, and these four after it has ended. LOCK_HOLD sets a longer time (30s), on a
// machine without other work; the latency may then be 200 ms more than before.
func TestLockedRows(t *testing.T) {
	t.Parallel()
	hold, slower, times := 5*time.Second, time.Second, time.Duration(3)
	if text := os.Getenv("LOCK_HOLD"); text != "" {
		var err error
		if hold, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
		slower, times = 200*time.Millisecond, 1
	}
	s := startSystem(t, nil)
	before := s.latencyFor(hold, "before")

	// Other work on the machine may delay the emails of one try; locked rows would delay those of each.
	for try := 1; ; try++ {
		during := s.latencyBesideLocks(hold, try)
		t.Logf("p99 %s before, %s while rows are locked for %s", before, during, hold)
		if during <= times*before+slower {
			break
		}
		if try == 3 {
			t.Errorf("p99 is %s while rows are locked, and was %s before", during, before)
			break
		}
	}
	var n int
	if err := s.db.SQL.QueryRowContext(t.Context(), `SELECT count(*) FROM email_outbox WHERE target = 'email:send'`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	s.sentOnce(n)
}

// latencyBesideLocks is latencyFor while another session has locked four emails of this try.
func (s *system) latencyBesideLocks(d time.Duration, try int) time.Duration {
	s.t.Helper()
	known, queued, calling := fmt.Sprintf("known%d@example.com", try), fmt.Sprintf("queued%d-", try), fmt.Sprintf("calling%d@example.com", try)
	s.await(s.sendTo(known), "SENT")
	tx, err := s.db.SQL.BeginTx(s.t.Context(), nil)
	if err != nil {
		s.t.Fatal(err)
	}
	defer tx.Rollback()
	s.worker.stop()
	held := []string{s.sendTo(queued + "1@example.com"), s.sendTo(queued + "2@example.com")}
	for _, id := range held {
		s.await(id, "ENQUEUED")
		lockOne(s.t, tx, `SELECT FROM email_outbox WHERE id = $1 FOR UPDATE`, id)
	}
	lockOne(s.t, tx, `SELECT FROM recipients WHERE email = $1 FOR UPDATE`, known)
	s.worker = startProgram(s.t, "worker", s.env)
	rule := sessim.Rule{Fault: "slow", DelayMS: 4000} // of a call that is found in progress, and ends while the row is locked
	rule.Match.To = calling
	s.inject(rule)
	id := s.sendTo(calling)
	s.await(id, "PROCESSING")
	lockOne(s.t, tx, `SELECT FROM email_outbox WHERE id = $1 AND status = 'PROCESSING' FOR UPDATE`, id)
	held = append(held, id, s.sendTo(known))

	during := s.latencyFor(d, fmt.Sprint("during", try))
	for _, id := range held {
		if e := s.email(id); e.Status == "SENT" {
			s.t.Errorf("%s is SENT: it was not locked", id)
		}
	}
	if err := tx.Rollback(); err != nil {
		s.t.Fatal(err)
	}
	for _, id := range held {
		s.await(id, "SENT")
	}
	return during
}

// latencyFor sends an email every 25 ms for a duration, and returns the time in which 99 % of them were SENT.
func (s *system) latencyFor(d time.Duration, name string) time.Duration {
	s.t.Helper()
	next, n := time.NewTicker(25*time.Millisecond), 0
	defer next.Stop()
	for end := time.Now().Add(d); time.Now().Before(end); n++ {
		s.sendTo(fmt.Sprintf("%s-%d@example.com", name, n))
		<-next.C
	}
	var p99 float64
	eventually(s.t, func() error {
		var sent int
		err := s.db.SQL.QueryRowContext(s.t.Context(), `
			SELECT count(*), coalesce(percentile_cont(0.99) WITHIN GROUP (ORDER BY extract(epoch FROM sent_at - created_at)), 0)
			FROM email_logs WHERE status = 'SENT' AND recipient LIKE $1 || '-%'`, name).Scan(&sent, &p99)
		if err == nil && sent < n {
			err = fmt.Errorf("%d of %d are SENT", sent, n)
		}
		return err
	})
	return time.Duration(p99 * float64(time.Second)).Round(time.Millisecond)
}

// sendTo sends an email to a recipient that no other email has.
func (s *system) sendTo(to string) string {
	s.t.Helper()
	return s.send(to, func(body map[string]any) { body["recipient"] = map[string]any{"externalId": to, "email": to} })
}

// lockOne runs a statement of another session that locks one row.
func lockOne(t *testing.T, tx *sql.Tx, statement string, args ...any) {
	t.Helper()
	result, err := tx.ExecContext(t.Context(), statement, args...)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := result.RowsAffected(); err != nil || n != 1 {
		t.Fatalf("%d rows, %v, want one: %s", n, err, statement)
	}
}
