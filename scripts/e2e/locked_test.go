package e2e_test

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"email-gateway/scripts/sessim"
)

// Another session locks two queued emails, the recipient of a third and a fourth that is being sent. All others are
// sent meanwhile, and these four after it has ended. LOCK_HOLD sets for how long others are accepted.
func TestLockedRows(t *testing.T) {
	t.Parallel()
	hold := 5 * time.Second
	if text := os.Getenv("LOCK_HOLD"); text != "" {
		var err error
		if hold, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	s := startSystem(t, nil)
	const known, calling = "known@example.com", "calling@example.com"
	s.await(sendToAddress(s, known), "SENT")
	tx, err := s.db.SQL.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	s.worker.stop()
	held := []string{sendToAddress(s, "queued1@example.com"), sendToAddress(s, "queued2@example.com")}
	for _, id := range held {
		s.await(id, "ENQUEUED")
		lockOne(t, tx, `SELECT FROM email_outbox WHERE id = $1 FOR UPDATE`, id)
	}
	lockOne(t, tx, `SELECT FROM recipients WHERE email = $1 FOR UPDATE`, known)
	s.worker = startProgram(t, "worker", s.env)
	rule := sessim.Rule{Fault: "slow", DelayMS: 15_000} // of a call that is found in progress, and ends while the row is locked
	rule.Match.To = calling
	injectFault(s.t, s.ses, rule)
	id := sendToAddress(s, calling)
	s.await(id, "PROCESSING")
	lockOne(t, tx, `SELECT FROM email_outbox WHERE id = $1 AND status = 'PROCESSING' FOR UPDATE`, id)
	held = append(held, id, sendToAddress(s, known))
	eventually(t, func() error {
		if requests := s.ses.Requests(id); len(requests) == 0 || !requests[0].Answered {
			return errors.New("the call is in progress")
		}
		return nil
	})

	next, n := time.NewTicker(25*time.Millisecond), 0
	defer next.Stop()
	for end := time.Now().Add(hold); time.Now().Before(end); n++ {
		sendToAddress(s, fmt.Sprintf("other%d@example.com", n))
		<-next.C
	}
	s.awaitAll(1+n, "SENT") // and known's first
	for _, id := range held {
		if e := s.email(id); e.Status == "SENT" {
			t.Errorf("%s is SENT: it was not locked", id)
		}
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	s.awaitAll(1+n+len(held), "SENT")
	s.sentOnce(1 + n + len(held))
}

// sendToAddress sends an email to a recipient that no other email has.
func sendToAddress(s *system, to string) string {
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
