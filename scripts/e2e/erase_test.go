package e2e_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"email-gateway/shared/email"
	"email-gateway/shared/store/storetest"
)

// privacyOfficer runs gatewayctl with the role for people's data.
func privacyOfficer(s *system, keys string, args ...string) *exec.Cmd {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), filepath.Join(binDir, "gatewayctl"), args...)
	cmd.Env = append(os.Environ(), "DATABASE_URL="+as(s.t, s.db.URL, "gateway_privacy"), "CPF_CNPJ_KEYS="+keys, "STORAGE_URL="+s.env["STORAGE_URL"])
	return cmd
}

// killedBetween starts the command and kills it when the count has risen but not reached the total.
func killedBetween(s *system, cmd *exec.Cmd, query string, whole int) {
	s.t.Helper()
	begun := storetest.Ask[int](s.t, s.db, query) // before the command starts: on a busy machine it may have ended when the query runs
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	for deadline := time.Now().Add(stallLimit); storetest.Ask[int](s.t, s.db, query) == begun; <-time.After(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatal("nothing happens")
		}
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if n := storetest.Ask[int](s.t, s.db, query); n <= begun || n >= whole {
		s.t.Fatalf("it was killed at %d of %d, want in between", n, whole)
	}
}

// An erasure is killed halfway while the person's tasks are queued and an import of theirs is in RabbitMQ. Run again,
// it completes; the queued messages find nothing, and nothing is sent to the person.
func TestErase_Killed(t *testing.T) {
	t.Parallel()
	s := startSystem(t, bulk(t, brokerURL(t)))
	migrate(t, s.db.URL, "roles")
	s.worker.freeze()
	const emails = 1500
	first := s.send("maria@cliente.example", func(b map[string]any) {
		b["recipient"] = map[string]any{"cpfCnpj": "529.982.247-25", "nome": "Maria", "email": b["to"]}
	})
	s.db.Run(s.t, fmt.Sprintf(`INSERT INTO email_outbox (id, company_id, lane_id, request_id, payload, sender, html, html_sha256, checker_version, cpf_cnpj_enc, expires_at)
		SELECT n.id, company_id, lane_id, request_id, jsonb_set(payload, '{outboxId}', to_jsonb(n.id)), sender, html, html_sha256, checker_version, cpf_cnpj_enc, expires_at
		FROM email_outbox, (SELECT gen_random_uuid() AS id FROM generate_series(2, %d)) n WHERE email_outbox.id = '%s'`, emails, first))
	if status, answer := s.call(http.MethodPost, "/v1/recipients", map[string]any{"cpfCnpj": "529.982.247-25", "nome": "Maria", "email": "maria@cliente.example"}, nil); status != http.StatusAccepted {
		t.Fatalf("%d %s", status, answer)
	}
	status, answer := s.upload("lista.csv", []byte("nome;e-mail;cidade;cpf\nMaria;maria@cliente.example;x;529.982.247-25\nRui;rui@example.com;y;\n"),
		map[string]string{"html": "<p>Olá {{nome}}</p>", "text": "Olá"})
	var mailing struct{ MailingID string }
	if err := json.Unmarshal(answer, &mailing); err != nil || status != http.StatusAccepted {
		t.Fatalf("%d %s", status, answer)
	}
	eventually(t, func() error {
		if n := s.redisClient().LLen(t.Context(), "asynq:{email:send}:pending").Val(); n < 10 {
			return fmt.Errorf("%d tasks are queued", n)
		}
		return nil
	})
	eventually(t, func() error {
		if n := storetest.Ask[int](s.t, s.db, "SELECT count(*) FROM email_outbox WHERE target <> 'email:send' AND status = 'PUBLISHED'"); n != 2 {
			return fmt.Errorf("%d messages are published, want 2", n)
		}
		return nil
	})

	erase := []string{"person", "erase", "--company", "Acme", "--cpf-cnpj", "52998224725", "--reason", "asked for it", "--yes", "--json"}
	killedBetween(s, privacyOfficer(s, s.env["CPF_CNPJ_KEYS"], erase...), "SELECT count(*) FROM email_outbox WHERE status = 'CANCELLED'", emails)
	out, err := privacyOfficer(s, s.env["CPF_CNPJ_KEYS"], erase...).Output()
	var done struct{ Busy, Emails int }
	if err != nil || json.Unmarshal(out, &done) != nil || done.Busy != 0 || done.Emails == 0 || done.Emails >= emails {
		t.Fatalf("the second run: %v\n%s", err, out)
	}
	s.worker.signal(syscall.SIGCONT)
	s.awaitQuietQueues()
	if m := s.awaitMailing(mailing.MailingID, "COMPLETED"); m.Sent != 1 || m.Cancelled != 1 {
		t.Errorf("%+v", m)
	}
	if shown := s.email(first); shown.Status != "CANCELLED" {
		t.Errorf("an erased email is shown as %+v", shown)
	}
	for _, path := range []string{"/v1/emails?status=CANCELLED", "/mailings/" + mailing.MailingID + "/entries"} {
		if status, answer := s.call(http.MethodGet, path, nil, nil); status != http.StatusOK || !strings.Contains(string(answer), "@erased.invalid") {
			t.Errorf("%s: %d %.500s", path, status, answer)
		}
	}
	for _, mail := range s.ses.Inbox() {
		if strings.Contains(fmt.Sprint(mail), "maria@") {
			t.Errorf("she was written to: %+v", mail)
		}
	}
	eventually(t, func() error { // the recipient's message was looked at
		if n := storetest.Ask[int](s.t, s.db, "SELECT count(*) FROM dead_letters WHERE target = 'recipients.upsert'"); n != 1 {
			return fmt.Errorf("%d dead letters", n)
		}
		return nil
	})
	for _, table := range []string{"email_outbox", "email_logs", "email_events", "recipients", "recipient_intakes", "mailing_entries", "dead_letters", "operator_audit", "idempotency_keys"} {
		for _, word := range []string{"maria", email.HashTaxID("52998224725", nil)} {
			if n := storetest.Ask[int](s.t, s.db, "SELECT count(*) FROM "+table+" t WHERE to_jsonb(t)::text ILIKE '%"+word+"%'"); n > 0 {
				t.Errorf("%s contains %s %d times", table, word, n)
			}
		}
	}
	if n := storetest.Ask[int](s.t, s.db, "SELECT count(*) FROM email_outbox WHERE status = 'CANCELLED'"); n != emails {
		t.Errorf("%d emails are CANCELLED, want %d", n, emails)
	}
}

// The queue's archived task of the person's failed email is erased, and so is the archived task of an email to
// another person that contains the erased person's address. The receipt counts them.
func TestErase_ArchivedTasks(t *testing.T) {
	t.Parallel()
	s := startSystem(t, nil)
	migrate(t, s.db.URL, "roles")
	const rejected = "sim-message-rejected@cliente.example"
	person := map[string]any{"cpfCnpj": "529.982.247-25", "nome": "Maria", "email": rejected}
	own := s.send(rejected, func(b map[string]any) { b["recipient"] = person })
	copied := s.send("sim-message-rejected@outra.example", func(b map[string]any) { b["cc"] = []string{rejected} })
	for _, id := range []string{own, copied} {
		s.await(id, "FAILED")
	}
	held := func() (names []string) {
		keys := s.redisClient().Keys(t.Context(), "asynq:{*}:t:*").Val()
		for _, key := range keys {
			if task := s.redisClient().HGet(t.Context(), key, "msg").Val(); strings.Contains(task, rejected) {
				names = append(names, key)
			}
		}
		return names
	}
	eventually(t, func() error {
		if n := len(held()); n != 2 {
			return fmt.Errorf("%d tasks that name the person are in Redis, want 2", n)
		}
		return nil
	})
	out, err := privacyOfficer(s, s.env["CPF_CNPJ_KEYS"], "person", "erase", "--company", "Acme", "--cpf-cnpj", "52998224725", "--reason", "asked for it", "--yes", "--json").Output()
	var done struct {
		Receipt struct{ Tasks struct{ Removed, Open int } }
	}
	if err != nil || json.Unmarshal(out, &done) != nil || done.Receipt.Tasks.Removed != 2 || done.Receipt.Tasks.Open != 0 {
		t.Errorf("%v\n%s", err, out)
	}
	if names := held(); len(names) > 0 {
		t.Errorf("Redis still has %q", names)
	}
}

// A rotation is killed halfway. Run again, it completes, and the old key is no longer needed.
func TestRotation_Killed(t *testing.T) {
	t.Parallel()
	s := startSystem(t, bulk(t, brokerURL(t)))
	migrate(t, s.db.URL, "roles")
	s.await(s.send("maria@cliente.example", func(b map[string]any) {
		b["recipient"] = map[string]any{"cpfCnpj": "529.982.247-25", "nome": "Maria", "email": b["to"]}
	}), "SENT")
	if status, answer := s.upload("lista.csv", []byte("nome;e-mail;cidade;cpf\nMaria;maria@cliente.example;x;529.982.247-25\n"),
		map[string]string{"html": "<p>Olá {{nome}}</p>", "text": "Olá"}); status != http.StatusAccepted {
		t.Fatalf("%d %s", status, answer)
	}
	const people = 20_000
	s.db.Run(s.t, fmt.Sprintf(`INSERT INTO recipients (id, company_id, cpf_cnpj_hash, cpf_cnpj_enc, email)
		SELECT gen_random_uuid(), company_id, encode(sha256(n::text::bytea), 'hex'), cpf_cnpj_enc, 'p' || n || '@cliente.example' FROM recipients, generate_series(2, %d) n WHERE cpf_cnpj_enc IS NOT NULL`, people))
	fresh := "fresh:" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("f", 32)))
	both := fresh + "," + s.env["CPF_CNPJ_KEYS"]
	s.api.stop()
	s.env["CPF_CNPJ_KEYS"] = both
	s.api = startProgram(t, "api", s.env)

	rotate := []string{"encryption", "rotate", "--reason", "yearly", "--json"}
	killedBetween(s, privacyOfficer(s, both, rotate...), "SELECT count(*) FROM recipients WHERE position('fresh'::bytea IN cpf_cnpj_enc) = 3", people)
	out, err := privacyOfficer(s, both, rotate...).Output()
	var done struct {
		Resealed int
		Keys     []struct {
			ID        string
			Sealed    int
			Removable bool
		}
	}
	if err != nil || json.Unmarshal(out, &done) != nil || done.Resealed == 0 || done.Resealed >= people || len(done.Keys) != 2 || !done.Keys[1].Removable || done.Keys[0].Sealed != people+1 {
		t.Fatalf("the second run: %v\n%s", err, out)
	}
	s.api.stop()
	s.env["CPF_CNPJ_KEYS"] = fresh
	s.api = startProgram(t, "api", s.env)
	export, err := privacyOfficer(s, fresh, "person", "export", "--company", "Acme", "--email", "maria@cliente.example", "--json").Output()
	if err != nil || !strings.Contains(string(export), `"cpf_cnpj": "52998224725"`) || !strings.Contains(string(export), `"filename": "lista.csv"`) {
		t.Errorf("without the old key: %v\n%.2000s", err, export)
	}
}
