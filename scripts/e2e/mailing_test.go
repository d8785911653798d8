package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"email-gateway/shared/servertest"
	"email-gateway/shared/store/storetest"
)

// A realistic file: every valid row is sent once, with correct accents, and the counts are exact. MAILING_ROWS=100000
// makes it large.
func TestMailing(t *testing.T) {
	t.Parallel()
	rows := mailingRows(t, 1_500)
	s := startSystem(t, bulk(t, brokerURL(t)))
	sheet := newSpreadsheet(t, rows)
	start := time.Now()
	id := s.mail("clientes.csv", sheet, nil)
	t.Logf("%d rows accepted in %s", rows, time.Since(start).Round(time.Millisecond))
	done := s.awaitMailing(id, "COMPLETED")
	t.Logf("completed after %s", time.Since(start).Round(time.Millisecond))
	if done.Total != sheet.rows || done.Sent != len(sheet.people) || done.Invalid != sheet.invalid || done.Duplicates != sheet.duplicates ||
		done.Failed+done.Suppressed+done.Expired+done.Cancelled+done.Unknown+done.Queued != 0 {
		t.Errorf("%+v", done)
	}
	s.deliveredOnce(sheet)

	// The first email completely: rendered in every part, with the one-click headers.
	for _, mail := range s.ses.Inbox() {
		if mail.To[0] != "pessoa0@cliente.example" {
			continue
		}
		headers := map[string]string{}
		for _, header := range mail.Headers {
			headers[header.Name] = header.Value
		}
		link := regexp.MustCompile(`href="(https://mail\.acme\.example/u/[^"]+)"`).FindStringSubmatch(mail.HTML)
		if link == nil || headers["List-Unsubscribe"] != "<"+link[1]+">" || headers["List-Unsubscribe-Post"] != "List-Unsubscribe=One-Click" {
			t.Errorf("link %v, headers %v", link, headers)
		}
		if !strings.Contains(mail.HTML, "João Conceição 0, seu código é ") || !strings.Contains(mail.HTML, `title="São Luís"`) || !strings.HasPrefix(mail.Text, "João Conceição 0: ") {
			t.Errorf("%s\n%s", mail.HTML, mail.Text)
		}
	}

	// Repeating the request returns the first response.
	status, answer := s.upload("clientes.csv", sheet.file, nil)
	var again mailingView
	if err := json.Unmarshal(answer, &again); err != nil || status != http.StatusAccepted || again.MailingID != id {
		t.Errorf("again: %d %s", status, answer)
	}
	if status, answer = s.upload("clientes.csv", sheet.file, map[string]string{"subject": "Outra coisa, {{nome}}"}); status != http.StatusConflict {
		t.Errorf("another one of the name: %d %s", status, answer)
	}
	s.sentOnce(len(sheet.people))
}

// RabbitMQ fails between publishing and consuming, the worker while it expands, and Postgres: each address still gets
// one email. Sending is paused meanwhile, because other tests kill a worker that sends.
func TestMailing_Faults(t *testing.T) {
	t.Parallel()
	rows := mailingRows(t, 7_000)
	rabbitmq, postgres := servertest.Start(t, "rabbitmq"), servertest.Start(t, "postgres")
	s := startSystemOn(t, storetest.NewOn(t, postgres.URL), bulk(t, rabbitmq.URL))
	sheet := newSpreadsheet(t, rows)
	s.setSending(false)

	rabbitmq.Stop()
	id := s.mail("clientes.csv", sheet, nil) // accepted all the same
	rabbitmq.Start()
	for kills := range 3 {
		// Most rows are left at each kill: thousands are expanded between two looks.
		at := awaitExpanded(s, id, 1+len(sheet.people)*kills/8)
		if at >= len(sheet.people) {
			t.Fatal("the expander was done before it could be killed")
		}
		s.worker.kill()
		if kills == 1 {
			rabbitmq.Crash() // while it has the unacknowledged job
		}
		s.worker = startProgram(t, "worker", s.env)
	}
	rabbitmq.Restart()
	postgres.Restart()
	if before := expandedRows(s, id); before < len(sheet.people) {
		awaitExpanded(s, id, before+1)
	}
	s.setSending(true)
	done := s.awaitMailing(id, "COMPLETED")
	if done.Sent != len(sheet.people) {
		t.Errorf("%+v", done)
	}
	s.deliveredOnce(sheet)
}

// expandedRows returns how many rows of the mailing have become emails.
func expandedRows(s *system, id string) (n int) {
	s.t.Helper()
	err := s.db.SQL.QueryRowContext(s.t.Context(), "SELECT processed_lines FROM mailings WHERE id = $1", id).Scan(&n)
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

func awaitExpanded(s *system, id string, n int) (now int) {
	s.t.Helper()
	eventually(s.t, func() error {
		if now = expandedRows(s, id); now < n {
			return fmt.Errorf("%d of the mailing's rows are expanded, want %d", now, n)
		}
		return nil
	})
	return now
}

// setSending pauses or resumes the emails' queues, like an operator.
func (s *system) setSending(on bool) {
	s.t.Helper()
	options, err := asynq.ParseRedisURI(s.redis.URL)
	if err != nil {
		s.t.Fatal(err)
	}
	inspector := asynq.NewInspector(options)
	defer func() { _ = inspector.Close() }()
	for _, queue := range []string{"email:send:high", "email:send", "email:send:low"} {
		change := inspector.PauseQueue
		if on {
			change = inspector.UnpauseQueue
		}
		if err := change(queue); err != nil {
			s.t.Fatal(err)
		}
	}
}
