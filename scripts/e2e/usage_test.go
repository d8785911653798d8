package e2e_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"

	"email-gateway/shared/store/storetest"
)

// usageCounts are those of GET /v1/usage.
type usageCounts struct{ Accepted, Sent, Delivered, Bounced, Complained, Mailings, Bytes int }

// usageOfMonth returns the counts of the current month.
func usageOfMonth(s *system) usageCounts {
	s.t.Helper()
	status, answer := s.call(http.MethodGet, "/v1/usage", nil, nil)
	var month struct {
		Total usageCounts
		Days  []usageCounts
	}
	if err := json.Unmarshal(answer, &month); err != nil || status != http.StatusOK {
		s.t.Fatalf("usage: %d %s", status, answer)
	}
	return month.Total
}

// ledgerUsage counts what the simulator's ledger has accepted. Its events follow from the addresses.
func ledgerUsage(s *system) (u usageCounts, twice int) {
	seen := map[string]bool{}
	for _, request := range s.ses.Ledger() {
		switch {
		case !request.Accepted:
			continue
		case seen[request.OutboxID]:
			twice++
			continue
		}
		seen[request.OutboxID] = true
		u.Sent++
		switch to := request.To[0]; {
		case strings.Contains(to, "sim-bounce"):
			u.Bounced++
		case strings.Contains(to, "sim-reject"):
		case strings.Contains(to, "sim-complaint@"):
			u.Complained++
			u.Delivered++
		default:
			u.Delivered++
		}
	}
	return u, twice
}

// loggedUsage counts the same in email_logs, and the rest in the outbox and the mailings.
func loggedUsage(s *system) usageCounts {
	return usageCounts{
		Accepted:   storetest.Ask[int](s.t, s.db, `SELECT count(*) FROM email_outbox WHERE target = 'email:send'`),
		Sent:       storetest.Ask[int](s.t, s.db, `SELECT count(*) FROM email_logs WHERE status = 'SENT'`),
		Delivered:  storetest.Ask[int](s.t, s.db, `SELECT count(*) FROM email_logs WHERE delivered_at IS NOT NULL`),
		Bounced:    storetest.Ask[int](s.t, s.db, `SELECT count(*) FROM email_logs WHERE delivery_problem = 'bounced'`),
		Complained: storetest.Ask[int](s.t, s.db, `SELECT count(*) FROM email_logs WHERE delivery_problem = 'complained'`),
		Mailings:   storetest.Ask[int](s.t, s.db, `SELECT count(*) FROM mailings`),
		Bytes: storetest.Ask[int](s.t, s.db, `SELECT sum(octet_length(html) + coalesce(octet_length(text_body), 0)) FROM email_outbox WHERE target = 'email:send'`) +
			storetest.Ask[int](s.t, s.db, `SELECT sum(file_bytes + octet_length(html) + coalesce(octet_length(text_body), 0)) FROM mailings`),
	}
}

// With throttles, errors, cut responses, repeated notifications, a replay and a mailing, the usage is what email_logs and
// SES's ledger have.
func TestUsage(t *testing.T) {
	t.Parallel()
	env := bulk(t, brokerURL(t))
	maps.Copy(env, map[string]string{"SES_CONFIGURATION_SET": "events", "SES_FEEDBACK_WINDOW": "5s", "EMAIL_BACKOFF": "50ms"})
	s := startSystem(t, env)
	s.subscribeFeedback()
	failed := s.send("ana+sim-message-rejected-x1@example.com", nil)
	ids := []string{failed}
	for n := range 3 {
		for _, kind := range []string{
			"", "throttle-x2", "unavailable-json-x1", "internal-failure-after-x1", "cut-after-x1", "cut-before-x1", "reset-after-x1", "message-rejected", "truncated-x1",
			"bounce", "bounce-transient", "complaint", "complaint-not-spam", "reject", "delivery-delay", "events-twice", "events-early", "events-reversed",
		} {
			to := fmt.Sprintf("ana+sim-%s@cliente%d.example", kind, n)
			ids = append(ids, s.send(strings.Replace(to, "+sim-@", "@", 1), nil))
		}
	}
	s.awaitMailing(s.mail("clientes.csv", newSpreadsheet(t, 50), nil), "COMPLETED")
	for _, id := range ids {
		s.await(id, "SENT", "FAILED")
	}
	if status, answer := s.call(http.MethodPost, "/v1/email/"+failed+"/retry", nil, nil); status/100 != 2 {
		t.Fatalf("retry: %d %s", status, answer)
	}
	s.await(failed, "SENT")
	eventually(t, func() error {
		ledger, twice := ledgerUsage(s)
		logged, got := loggedUsage(s), usageOfMonth(s)
		if ledger.Accepted, ledger.Mailings, ledger.Bytes = logged.Accepted, logged.Mailings, logged.Bytes; got != logged || got != ledger {
			return fmt.Errorf("usage %+v\nemail_logs %+v\nledger %+v, and %d accepted twice", got, logged, ledger, twice)
		}
		if got.Sent < 90 || got.Bounced != 6 || got.Complained != 3 || got.Mailings != 1 || got.Accepted != got.Sent+3 {
			return fmt.Errorf("usage %+v", got)
		}
		return nil
	})
	// Nothing changes when the programs are restarted, and the operator sees the same.
	before := usageOfMonth(s)
	s.dispatcher.stop()
	s.dispatcher = startProgram(t, "dispatcher", s.env)
	s.await(s.send("ana@example.com", nil), "SENT")
	eventually(t, func() error {
		var operators struct{ Total usageCounts }
		if err := json.Unmarshal([]byte(s.gatewayctl("company", "usage", "Acme", "--json")), &operators); err != nil {
			t.Fatal(err)
		}
		if got := usageOfMonth(s); got.Accepted != before.Accepted+1 || got.Sent != before.Sent+1 || got.Delivered != before.Delivered+1 || operators.Total != got {
			return fmt.Errorf("usage %+v, before one more email %+v; operators see %+v", got, before, operators.Total)
		}
		return nil
	})
}
