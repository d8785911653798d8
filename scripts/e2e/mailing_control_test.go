package e2e_test

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"email-gateway/scripts/sessim"
)

// control posts one of a mailing's control requests.
func (s *system) control(id, action string) {
	s.t.Helper()
	if status, answer := s.call(http.MethodPost, "/mailings/"+id+"/"+action, nil, nil); status != http.StatusOK {
		s.t.Fatalf("%s: %d %s", action, status, answer)
	}
}

// slowSES delays the response to each request by that many milliseconds.
func slowSES(t *testing.T, ses *sessim.Server, ms int64) {
	t.Helper()
	if err := ses.SetSettings(slowedBy(ses.Settings(), ms)); err != nil {
		t.Fatal(err)
	}
}

func (s *system) awaitRequests(n int64) {
	s.t.Helper()
	eventually(s.t, func() error {
		if now := s.ses.Summary().Requests; now < n {
			return fmt.Errorf("%d requests at SES, want %d", now, n)
		}
		return nil
	})
}

// expectFewRequests checks that SES receives at most most requests more than begun, and then none for 1.5 s.
func expectFewRequests(s *system, what string, begun, limit int64) {
	s.t.Helper()
	for before := begun; ; {
		<-time.After(1500 * time.Millisecond)
		now := s.ses.Summary().Requests
		if now > begun+limit {
			s.t.Fatalf("%d requests after %s", now-begun, what)
		}
		if now == before {
			return
		}
		before = now
	}
}

// Once a pause or a cancellation is answered, it acts within a second on everything that SES has not received: of 1,500
// emails at most as many are sent as 8 goroutines send in a second, 5 each, and those in flight.
func TestMailing_PauseResumeCancel(t *testing.T) {
	t.Parallel()
	env := bulk(t, brokerURL(t))
	env["WORKER_CONCURRENCY"] = "8"
	s := startSystem(t, env)
	slowSES(s.t, s.ses, 200)
	sheet := newSpreadsheet(t, 1_500)
	id := s.mail("clientes.csv", sheet, nil)

	const most = 8*5 + 8
	s.awaitRequests(40)
	s.control(id, "pause")
	before := s.ses.Summary().Requests
	expectFewRequests(s, "the pause", before, most)
	if view := s.mailing(id); view.Status != "PAUSED" {
		t.Errorf("%+v", view)
	}
	begun := s.ses.Summary().Requests
	s.control(id, "resume")
	s.awaitRequests(begun + 20)
	s.control(id, "cancel")
	before = s.ses.Summary().Requests
	expectFewRequests(s, "the cancel", before, most)

	var done mailingView
	eventually(t, func() error {
		if done = s.mailing(id); done.Sent+done.Cancelled != len(sheet.people) {
			return fmt.Errorf("%+v", done)
		}
		return nil
	})
	if done.Status != "CANCELLED" || done.Queued != 0 || int64(done.Sent) != s.ses.Summary().Accepted {
		t.Errorf("%+v; SES accepted %d", done, s.ses.Summary().Accepted)
	}
	var open int
	if err := s.db.SQL.QueryRowContext(t.Context(), "SELECT count(*) FROM email_outbox WHERE target = 'email:send' AND processed_at IS NULL").Scan(&open); err != nil || open != 0 {
		t.Errorf("%d emails are left open, %v", open, err)
	}
}

// Only the failed emails are sent again.
func TestMailing_RetryFailed(t *testing.T) {
	t.Parallel()
	s := startSystem(t, bulk(t, brokerURL(t)))
	if err := s.ses.Inject(sessim.Rule{Fault: "message-rejected", Match: sessim.Match{To: "pessoa7@cliente.example"}}); err != nil {
		t.Fatal(err)
	}
	sheet := newSpreadsheet(t, 100)
	id := s.mail("clientes.csv", sheet, nil)
	done := s.awaitMailing(id, "COMPLETED")
	if done.Failed != 1 || done.Sent != len(sheet.people)-1 {
		t.Errorf("%+v", done)
	}
	s.ses.ClearFaults()
	s.control(id, "retry-failed")
	eventually(t, func() error {
		if done = s.mailing(id); done.Status != "COMPLETED" || done.Failed != 0 {
			return fmt.Errorf("%+v", done)
		}
		return nil
	})
	s.deliveredOnce(sheet)
}

// A one-click unsubscribe suppresses the next mailing, but not an invoice.
func TestUnsubscribe(t *testing.T) {
	t.Parallel()
	s := startSystem(t, bulk(t, brokerURL(t)))
	sheet := newSpreadsheet(t, 10)
	s.awaitMailing(s.mail("marco.csv", sheet, nil), "COMPLETED")
	link := ""
	for _, mail := range s.ses.Accepted("pessoa3@cliente.example") {
		for _, kept := range s.ses.Inbox() {
			if kept.MessageID != mail.MessageID {
				continue
			}
			for _, header := range kept.Headers {
				if header.Name == "List-Unsubscribe" {
					link = strings.Trim(header.Value, "<>")
				}
			}
		}
	}
	path := strings.TrimPrefix(link, "https://mail.acme.example")
	visit := func(method, body string) (int, string) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.api.addr+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		response, err := httpClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		page, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, string(page)
	}
	suppressed := func() (n int) {
		t.Helper()
		if err := s.db.SQL.QueryRowContext(t.Context(), "SELECT count(*) FROM suppressions").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if status, page := visit(http.MethodGet, ""); status != http.StatusOK || strings.Contains(page, "pessoa3") || suppressed() != 0 {
		t.Errorf("a look at the page: %d, %d suppressed\n%s", status, suppressed(), page)
	}
	for range 2 {
		if status, _ := visit(http.MethodPost, url.Values{"List-Unsubscribe": {"One-Click"}}.Encode()); status != http.StatusOK || suppressed() != 1 {
			t.Errorf("the click: %d, %d suppressed", status, suppressed())
		}
	}
	path = path[:len(path)-2] + "xx"
	if status, _ := visit(http.MethodPost, ""); status != http.StatusNotFound {
		t.Errorf("a link that was made up: %d", status)
	}

	done := s.awaitMailing(s.mail("abril.csv", sheet, nil), "COMPLETED")
	if done.Suppressed != 1 || done.Sent != len(sheet.people)-1 {
		t.Errorf("%+v", done)
	}
	s.await(s.send("pessoa3@cliente.example", nil), "SENT")
}
