package e2e_test

import (
	"database/sql"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"

	"email-gateway/shared/store/storetest"
)

// as returns the same database for a role.
func as(t *testing.T, databaseURL, role string) string {
	t.Helper()
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.User(role)
	return u.String()
}

// The three programs and gatewayctl, each with its own role: everything that they are for works, and little else.
func TestRoles(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	owner := db.URL
	migrate(t, owner, "roles")
	db.URL, db.Store = as(t, owner, "gateway_operator"), nil // which gatewayctl uses, for the company and its key too
	env := bulk(t, brokerURL(t))
	env["RECIPIENTS_BATCH_TIMEOUT_MS"] = "100"
	s := newSystem(t, binDir, db, env)
	run := func(name string) *program {
		return startProgram(t, name, s.env, map[string]string{"DATABASE_URL": as(t, owner, "gateway_"+name)})
	}
	s.api, s.dispatcher, s.worker = run("api"), run("dispatcher"), run("worker")
	s.key = s.newKey("Acme", "billing@acme.example")

	email := s.send("ana@example.com", func(b map[string]any) {
		b["recipient"] = map[string]any{"cpfCnpj": "529.982.247-25", "email": "ana@example.com"}
	})
	sheet := newSpreadsheet(t, 20)
	mailing := s.mail("clientes.csv", sheet, nil)
	if status, answer := s.call(http.MethodPost, "/v1/recipients", map[string]any{"externalId": "C-1", "email": "bea@example.com"}, nil); status != http.StatusAccepted {
		t.Errorf("recipient: %d %s", status, answer)
	}
	later := s.send("eva@example.com", func(b map[string]any) {
		b["sendAt"] = time.Now().Add(time.Hour).Format(time.RFC3339)
		b["aggregate"] = map[string]any{"type": "interview", "id": "42", "eventType": "REMINDER"}
	})
	sooner := map[string]any{"sendAt": time.Now().Add(time.Minute).Format(time.RFC3339)}
	if status, answer := s.call(http.MethodPatch, "/v1/email/"+later, sooner, nil); status != http.StatusOK {
		t.Errorf("reschedule: %d %s", status, answer)
	}
	if status, answer := s.call(http.MethodPost, "/v1/aggregates/interview/42/cancel", nil, nil); status != http.StatusOK {
		t.Errorf("cancel of the aggregate: %d %s", status, answer)
	}
	if status, answer := s.call(http.MethodPost, "/v1/email/"+later+"/cancel", nil, nil); status != http.StatusOK {
		t.Errorf("cancel: %d %s", status, answer)
	}
	if status, answer := s.call(http.MethodPost, "/v1/email/"+later+"/retry", nil, nil); status != http.StatusAccepted {
		t.Errorf("retry: %d %s", status, answer)
	}
	refused := s.send("sim-bad-request@example.com", nil)
	s.await(email, "SENT")
	s.await(later, "SENT")
	s.awaitMailing(mailing, "COMPLETED")
	s.await(refused, "FAILED")
	eventually(t, func() error {
		var there bool
		err := s.db.SQL.QueryRowContext(t.Context(), "SELECT EXISTS (SELECT FROM recipients WHERE external_id = 'C-1')").Scan(&there)
		if err == nil && !there {
			err = errors.New("the recipient is not written down")
		}
		return err
	})
	// gatewayctl doctor finds no problem, and changes are audited with the operator's name.
	s.gatewayctl("doctor")
	s.gatewayctl("lane", "pause", "--company", "Acme", "--reason", "drill")
	s.gatewayctl("lane", "resume", "--company", "Acme")
	s.gatewayctl("email", "retry", refused, "--reason", "once more")
	s.await(refused, "FAILED")
	s.gatewayctl("dlq", "discard", "--all", "--yes", "--reason", "typo")
	s.gatewayctl("key", "revoke", s.key, "--reason", "over")
	audit := s.gatewayctl("audit", "list", "--json")
	for _, action := range []string{"company.create", "key.create", "lane.pause", "lane.resume", "email.retry", "dlq.discard-many", "key.revoke"} {
		if !strings.Contains(audit, `"action": "`+action+`"`) {
			t.Errorf("%s is not written down:\n%s", action, audit)
		}
	}
	if entries, as := strings.Count(audit, `"action"`), strings.Count(audit, `"databaseRole": "gateway_operator"`); entries != as {
		t.Errorf("%d of %d entries are gateway_operator's", as, entries)
	}
	for _, p := range []*program{s.api, s.dispatcher, s.worker} {
		if strings.Contains(p.logged(), "permission denied") {
			t.Errorf("%s was refused something it needs:\n%s", p.name, p.tail())
		}
	}
	for role, statements := range map[string][]string{
		"gateway_api": {
			"UPDATE email_events SET type = 'SENT'", "DELETE FROM email_outbox", "INSERT INTO api_keys (key_id) VALUES ('x')",
			"UPDATE companies SET suspended_at = NULL", "UPDATE provider_gate SET held_at = now()", "DROP TABLE companies", "CREATE TABLE mine ()",
			"COPY companies TO PROGRAM 'cat'", "SET ROLE gateway_worker",
		},
		"gateway_dispatcher": {
			"SELECT FROM api_keys", "DELETE FROM suppressions", "UPDATE email_events SET type = 'SENT'", "DELETE FROM mailings", "INSERT INTO mailings (id) VALUES (NULL)",
		},
		"gateway_worker": {
			"SELECT FROM api_keys", "SELECT answer FROM idempotency_keys", "DELETE FROM email_logs", "UPDATE dispatch_lanes SET held_at = NULL", "TRUNCATE email_events",
		},
		"gateway_operator": {"DELETE FROM operator_audit", "UPDATE operator_audit SET operator = 'eva'", "DELETE FROM dead_letters", "UPDATE email_events SET type = 'SENT'", "SELECT answer FROM idempotency_keys", "DELETE FROM companies"},
		"gateway_privacy": {
			"DELETE FROM operator_audit", "UPDATE email_events SET type = 'SENT'", "DELETE FROM email_events", "DELETE FROM email_logs", "DELETE FROM mailings",
			"INSERT INTO email_outbox (id) VALUES (NULL)", "SELECT FROM api_keys", "UPDATE companies SET suspended_at = NULL",
		},
	} {
		conn, err := sql.Open("postgres", as(t, owner, role))
		if err != nil {
			t.Fatal(err)
		}
		for _, statement := range statements {
			var said *pq.Error
			if _, err := conn.ExecContext(t.Context(), statement); !errors.As(err, &said) || said.Code != pqerror.InsufficientPrivilege {
				t.Errorf("%s: %s: %v", role, statement, err)
			}
		}
		_ = conn.Close()
	}
}
