package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// The runbook for a restored database withdraws every waiting email that SES accepted, by the workers' logs, since the
// restored time, which may have any offset from UTC. That includes an email that a worker was sending at that time. An
// email that they name as sent earlier waits because it was retried.
func TestRunbook_WithdrawsSentEmails(t *testing.T) {
	t.Parallel()
	s := startSystem(t, map[string]string{"WORKER_CONCURRENCY": "1"})
	slowSES(s.t, s.ses, 600_000)
	sending := s.send("enviando@cliente.example", nil)
	s.awaitRequests(1)
	s.worker.kill()
	waiting := s.send("espera@cliente.example", nil)
	again := s.send("repetido@cliente.example", nil)
	s.db.Run(s.t, "UPDATE email_outbox SET lease_until = now() WHERE id = '"+sending+"'")

	folders := map[string]string{"BACKUP": t.TempDir(), "LOGS": t.TempDir(), "POINT": databaseTime(s)}
	var log strings.Builder
	line := func(id, rest string, age time.Duration) {
		fmt.Fprintf(&log, `{"timestamp":%q,"level":"info","message":"email moved","context":{"outboxId":%q,%s}}`+"\n", time.Now().Add(-age).UTC().Format(time.RFC3339Nano), id, rest)
	}
	line(sending, `"state":"SENT"`, 0)
	line(waiting, `"ended":"SENT","state":"SENT_ATTEMPT"`, 0) // the database did not record the result of the call
	line(again, `"state":"SENT"`, time.Minute)
	s.email(again) // a request since the restored time
	s.api.awaitOutput(stallLimit, regexp.MustCompile(`"message":"request".*"method":"GET","path":"/v1/email/:id"`))
	for name, text := range map[string]string{"worker-1.log": log.String(), "api-1.log": s.api.logged()} {
		if err := os.WriteFile(filepath.Join(folders["LOGS"], name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s.runbook("Hold emails that may be sent twice", folders)
	s.runbook("What came after the dump", folders)

	for _, id := range []string{sending, waiting} {
		if got := s.email(id); got.Status != "CANCELLED" {
			t.Errorf("an email that was sent is %s after %v", got.Status, got.timeline())
		}
	}
	if got := s.email(again); got.Status == "CANCELLED" {
		t.Error("an email that was sent before the restored time is withdrawn")
	}
}
