package e2e_test

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"email-gateway/scripts/sessim"
	"email-gateway/shared/servertest"
	"email-gateway/shared/store/storetest"
)

// ownPostgres starts a Postgres server for this test, with an empty database.
func ownPostgres(t *testing.T) (storetest.Database, *servertest.Server) {
	t.Helper()
	server := servertest.Start(t, "postgres")
	db, err := sql.Open("postgres", server.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return storetest.Database{URL: server.URL, SQL: db}, server
}

// A gateway under load is dumped, all its services are destroyed some emails later, and it is restored from the dump
// as OPERATIONS.md describes: everything in the dump reaches a final state, and what was sent after the dump is not
// sent again.
func TestBackup(t *testing.T) {
	t.Parallel()
	db, postgres := ownPostgres(t)
	rabbitmq := servertest.Start(t, "rabbitmq")
	db.Run(t, "CREATE ROLE gateway_owner LOGIN CREATEROLE")
	db.Run(t, "ALTER DATABASE "+storetest.Ask[string](t, db, "SELECT current_database()")+" OWNER TO gateway_owner")
	migrate(t, as(t, db.URL, "gateway_owner"), "up")
	migrate(t, as(t, db.URL, "gateway_owner"), "roles")
	env := bulk(t, rabbitmq.URL)
	env["WORKER_CONCURRENCY"] = "8"
	env["RECIPIENTS_BATCH_TIMEOUT_MS"] = "60000" // a recipient waits that long between RabbitMQ and its table
	env["SES_CONFIGURATION_SET"], env["SES_FEEDBACK_WINDOW"] = "events", "5s"
	env["LOG_LEVEL"] = "error" // the lines that the runbook reads are written nevertheless
	s := startSystemOn(t, db, env)
	s.subscribeFeedback()
	folders := map[string]string{"BACKUP": t.TempDir(), "LOGS": t.TempDir(), "STORAGE_URL": env["STORAGE_URL"]}

	var early string // sent before the dump
	for i := range 20 {
		early = s.send(fmt.Sprintf("antes%d@cliente.example", i), nil)
		s.await(early, "SENT")
	}
	scheduled := s.send("agendado@cliente.example", func(b map[string]any) { b["sendAt"] = time.Now().Add(time.Hour).Format(time.RFC3339) })
	person := importRecipient(s)
	slowSES(s.t, s.ses, 200) // 40 a second, so that much of what follows waits
	sheet := newSpreadsheet(t, 400)
	mailing := s.mail("clientes.csv", sheet, nil)
	s.awaitRequests(60)
	waiting := s.send("espera@cliente.example", func(b map[string]any) { b["priority"] = 10 })
	changed := changedAfterDump(s)
	s.runbook("Back up", folders)

	changed.change()
	s.email(early)
	since := s.ses.Summary().Requests
	lost := s.send("depois@cliente.example", func(b map[string]any) { b["priority"] = 1 })
	s.await(lost, "SENT")
	s.awaitRequests(since + 60)
	after := acceptAfterDump(s)
	for _, p := range []*program{s.worker, s.dispatcher, s.api} {
		p.kill()
	}
	postgres.Kill()
	logged := keepLogs(s, folders["LOGS"])
	taken := acceptedBySES(s.ses)

	var again *servertest.Server
	s.db, again = ownPostgres(t)
	s.redis = servertest.Start(t, "redis")
	folders["STORAGE_URL"] = "file://" + t.TempDir() + "/new"
	s.runbook("Restore", folders)
	if foreign := storetest.Ask[int](s.t, s.db, `SELECT count(*) FROM (SELECT relowner AS owner FROM pg_class WHERE relnamespace = 'public'::regnamespace
		UNION ALL SELECT proowner FROM pg_proc WHERE pronamespace = 'public'::regnamespace UNION ALL SELECT datdba FROM pg_database WHERE datname = current_database()) o
		WHERE owner <> 'gateway_owner'::regrole`); foreign > 0 {
		t.Errorf("%d tables and functions have another owner after the restore", foreign)
	}
	if storetest.Ask[int](s.t, s.db, "SELECT count(*) FROM email_outbox WHERE id = '"+waiting+"'") != 1 || storetest.Ask[int](s.t, s.db, "SELECT count(*) FROM email_outbox WHERE id = '"+lost+"'") != 0 {
		t.Fatalf("the dump on %s is not consistent: %s", again.URL, s.statusCounts())
	}
	// A recipient counts as lost only after a longer time than a test lasts.
	s.db.Run(s.t, "UPDATE email_outbox SET processed_at = now() - interval '16 min' WHERE target = 'recipients.upsert'")
	s.env["DATABASE_URL"], s.env["REDIS_URL"], s.env["STORAGE_URL"] = s.db.URL, s.redis.URL, folders["STORAGE_URL"]
	s.env["RABBITMQ_URL"], s.env["RECIPIENTS_BATCH_TIMEOUT_MS"] = servertest.Start(t, "rabbitmq").URL, "1000"
	s.api, s.dispatcher, s.worker = startProgram(t, "api", s.env), startProgram(t, "dispatcher", s.env), startProgram(t, "worker", s.env)

	late := s.send("nova@cliente.example", nil)
	s.awaitMailing(mailing, "SENDING")
	s.awaitMailing(changed.mailing, "SENDING")
	if got := s.email(late); got.Status != "PENDING" || len(s.ses.Requests(late)) > 0 {
		t.Errorf("an email passed the pause: %+v", got)
	}
	slowSES(s.t, s.ses, 0)
	s.gatewayctl("lane", "pause", "--company", "Acme", "--mailing", changed.mailing, "--reason", "it waits for a quota")
	printed := s.runbook("What came after the dump", folders)
	after.check(folders["BACKUP"], printed, early)

	s.awaitMailing(mailing, "COMPLETED")
	s.await(late, "SENT")
	neverSent := changed.check(taken)
	eventually(t, func() error {
		if open := storetest.Ask[int](s.t, s.db, "SELECT count(*) FROM email_outbox WHERE target = 'email:send' AND processed_at IS NULL"); open != 1 {
			return fmt.Errorf("%d emails are not final, want only the scheduled one: %s", open, s.statusCounts())
		}
		return nil
	})
	if got := s.email(scheduled); got.Status != "PENDING" {
		t.Errorf("the scheduled email is %s", got.Status)
	}
	if status, _ := s.call(http.MethodGet, "/v1/email/"+lost, nil, nil); status != http.StatusNotFound {
		t.Errorf("an email from after the dump: %d", status)
	}
	eventually(t, func() error {
		if storetest.Ask[int](s.t, s.db, "SELECT count(*) FROM recipients WHERE id = '"+person+"'") != 1 {
			return fmt.Errorf("the recipient in the lost RabbitMQ is not written: %s", s.statusCounts())
		}
		return nil
	})
	checkSentOnceExcept(s, taken, logged, 20, neverSent...)
	s.runbook("Capacity", nil)
	if files(t, strings.TrimPrefix(folders["STORAGE_URL"], "file://")) != 2 {
		t.Error("the files of the mailings are not restored")
	}
}

// keepLogs writes the logs of worker and api to the folder, and returns the worker's.
func keepLogs(s *system, folder string) (worker string) {
	s.t.Helper()
	for name, p := range map[string]*program{"worker-1.log": s.worker, "api-1.log": s.api} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(p.logged()), 0o600); err != nil {
			s.t.Fatal(err)
		}
	}
	return s.worker.logged()
}

// importRecipient imports a recipient and returns when its message is in RabbitMQ.
func importRecipient(s *system) (id string) {
	s.t.Helper()
	status, answer := s.call(http.MethodPost, "/v1/recipients", map[string]any{"externalId": "C-1", "email": "ana@cliente.example"}, nil)
	var accepted struct{ ID string }
	if err := json.Unmarshal(answer, &accepted); err != nil || status != http.StatusAccepted {
		s.t.Fatalf("recipient: %d %s", status, answer)
	}
	eventually(s.t, func() error {
		if storetest.Ask[int](s.t, s.db, "SELECT count(*) FROM email_outbox WHERE target = 'recipients.upsert' AND status = 'PUBLISHED'") != 1 {
			return fmt.Errorf("the recipient is not on its queue: %s", s.statusCounts())
		}
		return nil
	})
	return accepted.ID
}

// acceptedBySES counts how often SES accepted each email.
func acceptedBySES(ses *sessim.Server) map[string]int {
	taken := map[string]int{}
	for _, entry := range ses.Ledger() {
		if entry.Accepted {
			taken[entry.OutboxID]++
		}
	}
	return taken
}

// checkSentOnceExcept checks that SES accepted every final email once. More often is allowed if the email is flagged,
// or if a worker was processing it when everything was lost: SES had accepted it before, and no log mentions it. At
// least leastWithdrawn emails were withdrawn. Those that the tenant had cancelled were never sent.
func checkSentOnceExcept(s *system, before map[string]int, logged string, leastWithdrawn int, cancelled ...string) {
	s.t.Helper()
	rows, err := s.db.SQL.QueryContext(s.t.Context(),
		"SELECT id, status, possible_duplicate FROM email_outbox WHERE target = 'email:send' AND processed_at IS NOT NULL")
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	taken := acceptedBySES(s.ses)
	emails, withdrawn, unannounced := 0, 0, 0
	for rows.Next() {
		var id, status string
		var flagged bool
		if err := rows.Scan(&id, &status, &flagged); err != nil {
			s.t.Fatal(err)
		}
		emails++
		times := taken[id]
		switch {
		case status == "CANCELLED" && times == 0 && slices.Contains(cancelled, id):
		case status == "CANCELLED" && times == 1 && before[id] == 1:
			withdrawn++
		case status != "SENT" || times < 1:
			s.t.Errorf("%s is %s, and SES accepted it %d times (before the loss: %d)", id, status, times, before[id])
		case times > 1 && !flagged && (before[id] == 0 || strings.Contains(logged, id)):
			s.t.Errorf("%s was sent %d times and is not flagged", id, times)
		case times > 1 && !flagged:
			unannounced++
		}
	}
	if err := rows.Err(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Logf("%d emails, %d withdrawn, %d were being sent and were sent twice", emails, withdrawn, unannounced)
	if withdrawn < leastWithdrawn || unannounced > 8 {
		s.t.Errorf("%d were withdrawn, want those that were sent between dump and loss; %d were sent twice, want 8 at most", withdrawn, unannounced)
	}
}
