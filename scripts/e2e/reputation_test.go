package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"email-gateway/shared/store/storetest"
	"email-gateway/shared/waittest"
)

// complaining is a file whose first recipients complain, each tenth of the first n.
func complaining(prefix string, rows, n int) spreadsheet {
	sheet := spreadsheet{rows: rows, people: make(map[string]string, rows)}
	var text strings.Builder
	text.WriteString("Nome;E-mail;Cidade;CPF\n")
	for i := range rows {
		address := fmt.Sprintf("%s%d@cliente.example", prefix, i)
		if i < n && i%10 == 0 {
			address = fmt.Sprintf("%s%d+sim-complaint@cliente.example", prefix, i)
		}
		sheet.people[address] = "Ana"
		fmt.Fprintf(&text, "Ana;%s;Recife;\n", address)
	}
	sheet.file = []byte(text.String())
	return sheet
}

// waitingFor is what a mailing shows that it waits for.
func waitingFor(s *system, id string) (status, reason string) {
	s.t.Helper()
	_, answer := s.call(http.MethodGet, "/mailings/"+id, nil, nil)
	var view struct{ Status, WaitingFor string }
	if err := json.Unmarshal(answer, &view); err != nil {
		s.t.Fatal(err)
	}
	return view.Status, view.WaitingFor
}

// Through the three programs: a list whose recipients complain has the mailings of its company paused, also one
// that is uploaded later. The company's single emails and another company's mailing go on. The
// tenant cannot resume, an operator can.
func TestReputationGuard(t *testing.T) {
	t.Parallel()
	env := bulk(t, brokerURL(t))
	env["WORKER_CONCURRENCY"], env["SES_CONFIGURATION_SET"], env["SES_FEEDBACK_WINDOW"] = "8", "events", "5m"
	s := startSystem(t, env)
	s.subscribeFeedback()
	acme, beta := s.key, s.newKey("Beta", "billing@beta.example")
	slowSES(s.t, s.ses, 150)
	// All who complain are among the first 200, who get their emails before the guard may act.
	sheet := complaining("acme", 2000, 100)
	bad := s.mail("lista.csv", sheet, nil)
	eventually(t, func() error {
		if status, reason := waitingFor(s, bad); reason != "reputation" {
			return fmt.Errorf("the mailing is %s and waits for %q; %s", status, reason, s.statusCounts())
		}
		return nil
	})
	slowSES(s.t, s.ses, 0)

	// The deciding event is the fifth complaint, or the 200th email if that was sent later.
	var took float64
	err := s.db.SQL.QueryRowContext(t.Context(), `
		SELECT extract(epoch FROM c.mailings_paused_at - greatest(
			(SELECT applied_at FROM ses_events WHERE kind = 'Complaint' ORDER BY applied_at OFFSET 4 LIMIT 1),
			(SELECT sent_at FROM email_logs WHERE status = 'SENT' ORDER BY sent_at OFFSET 199 LIMIT 1)))
		FROM companies c WHERE c.name = 'Acme'`).Scan(&took)
	if err != nil || took > waittest.Limit.Seconds() {
		t.Errorf("paused after %.1f s, %v", took, err)
	}
	t.Logf("paused %.1f s after the deciding event", took)
	status, answer := s.call(http.MethodPost, "/mailings/"+bad+"/retry-failed", nil, nil)
	if status != http.StatusConflict || !strings.Contains(string(answer), `"MAILINGS_PAUSED"`) {
		t.Errorf("retry-failed: %d %s", status, answer)
	}
	s.control(bad, "pause")
	status, answer = s.call(http.MethodPost, "/mailings/"+bad+"/resume", nil, nil)
	if status != http.StatusConflict || !strings.Contains(string(answer), `"MAILINGS_PAUSED"`) {
		t.Errorf("resume: %d %s", status, answer)
	}
	second := s.mail("depois.csv", complaining("depois", 20, 0), nil)
	if _, reason := waitingFor(s, second); reason != "reputation" {
		t.Errorf("a later mailing waits for %q", reason)
	}
	s.await(s.send("fatura@example.com", nil), "SENT")

	s.key = beta
	other := complaining("beta", 300, 0)
	if done := s.awaitMailing(s.mail("beta.csv", other, nil), "COMPLETED"); done.Sent != len(other.people) {
		t.Errorf("the other company: %+v", done)
	}
	if got := companyEvents(s); got != "" {
		t.Errorf("events of the other company: %s", got)
	}
	s.key = acme
	if got := companyEvents(s); got != "MAILINGS_PAUSED" {
		t.Errorf("events: %s", got)
	}
	if sent := storetest.Ask[int](s.t, s.db, `SELECT count(*) FROM email_logs l JOIN mailing_entries e ON e.id = l.outbox_id WHERE l.sent_at > (SELECT mailings_paused_at + interval '2 min' FROM companies WHERE name = 'Acme') AND l.company_id = (SELECT id FROM companies WHERE name = 'Acme')`); sent > 0 {
		t.Errorf("%d emails of mailings sent while they are paused", sent)
	}
	if view := s.mailing(second); view.Sent != 0 {
		t.Errorf("the later mailing: %+v", view)
	}
	if view := s.mailing(bad); view.Sent >= len(sheet.people)-200 {
		t.Errorf("the mailing was not stopped: %+v", view)
	}

	s.gatewayctl("company", "reputation", "resume", "Acme", "--reason", "the list was cleaned")
	s.control(bad, "resume")
	start := time.Now()
	if done := s.awaitMailing(second, "COMPLETED"); done.Sent != 20 {
		t.Errorf("the later mailing: %+v", done)
	}
	t.Logf("the later mailing was sent %.1f s after the resume", time.Since(start).Seconds())
	if done := s.awaitMailing(bad, "COMPLETED"); done.Sent != len(sheet.people) {
		t.Errorf("the mailing after the resume: %+v", done)
	}
	if got := companyEvents(s); got != "MAILINGS_PAUSED MAILINGS_RESUMED" {
		t.Errorf("events: %s", got)
	}
}

// companyEvents are the types of the events of the company itself, but warnings, in the order of the feed.
func companyEvents(s *system) string {
	s.t.Helper()
	_, answer := s.call(http.MethodGet, "/v1/events?types=MAILINGS_PAUSED,MAILINGS_RESUMED&limit=100", nil, nil)
	var page struct {
		Events []struct{ Type, OutboxID string }
	}
	if err := json.Unmarshal(answer, &page); err != nil {
		s.t.Fatalf("%v: %s", err, answer)
	}
	var types []string
	for _, e := range page.Events {
		if e.OutboxID != "" {
			s.t.Errorf("%+v names an email", e)
		}
		types = append(types, e.Type)
	}
	return strings.Join(types, " ")
}
