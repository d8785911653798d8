package ctl_test

import (
	"strings"
	"testing"

	"github.com/google/uuid"

	"email-gateway/api/internal/ctl"
	"email-gateway/shared/keyring"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/storetest"
	"email-gateway/shared/store/webhook"
)

// The connection to Postgres is lost right after the commit of a change. A new key is shown nevertheless, and no command
// reports that nothing was changed.
func TestOperator_DatabaseIsLostAfterTheCommit(t *testing.T) {
	t.Parallel()
	by, d := newOperator(t)
	proxy := storetest.NewProxy(t, d)
	through := operator{databaseURL: proxy.URL}
	by.must(t, "company", "create", "--name", "Acme", "--default-from", "billing@acme.example")
	company := storetest.Ask[uuid.UUID](t, d, `SELECT id FROM companies`)
	newKey := func() string { return by.object(t, "key", "create", "--company", "Acme")["keyId"].(string) }
	newEmail := func() string { return d.Accept(t, company, nil).String() }
	cancelled := newEmail()
	by.must(t, "email", "cancel", cancelled, "--reason", "test")
	hook := uuid.Must(uuid.NewV7())
	if _, err := webhook.New(d.Store.DB()).Create(t.Context(), webhook.Endpoint{ID: hook, CompanyID: company, URL: "https://erp.acme.example/", Secret: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	var letters []string
	for range 3 {
		letters = append(letters, giveUp(t, d, company))
	}
	role := storetest.Ask[string](t, d, `SELECT current_user`)
	shown := []string{"key create", "key rotate", "suppression add", "suppression remove", "company retention", "program revoke"}
	for _, args := range [][]string{
		{"key", "create", "--company", "Acme", "--expires", "90d", "--networks", "203.0.113.0/24"},
		{"key", "rotate", newKey(), "--grace", "1h"},
		{"key", "revoke", newKey(), "--reason", "lost"},
		{"company", "create", "--name", "Beta", "--default-from", "billing@beta.example"},
		{"company", "suspend", "Acme", "--reason", "unpaid"},
		{"company", "resume", "Acme"},
		{"company", "retention", "Acme", "--bodies", "7d"},
		{"company", "quota", "set", "Acme", "emails_per_day=5"},
		{"company", "reputation", "set", "Acme", "guard=off"},
		{"company", "webhook", "disable", "Acme", hook.String(), "--reason", "sold"},
		{"company", "webhook", "enable", "Acme", hook.String()},
		{"domain", "add", "--company", "Acme", "mail.acme.example"},
		{"domain", "remove", "--company", "Acme", "mail.acme.example", "--reason", "sold"},
		{"program", "allow", role, "--company", "Acme"},
		{"program", "revoke", role, "--company", "Acme", "--reason", "over"},
		{"lane", "pause", "--company", "Acme", "--reason", "test"},
		{"lane", "resume", "--company", "Acme"},
		{"lane", "pause", "--all", "--reason", "test"},
		{"lane", "resume", "--all"},
		{"suppression", "add", "ana@example.com", "--company", "Acme", "--note", "by phone"},
		{"suppression", "remove", "ana@example.com", "--company", "Acme", "--note", "by phone"},
		{"email", "cancel", newEmail(), "--reason", "wrong"},
		{"email", "retry", cancelled},
		{"dlq", "retry", letters[0]},
		{"dlq", "discard", letters[1], "--reason", "typo"},
		{"dlq", "retry", "--all", "--yes"},
	} {
		name := strings.Join(args, " ")
		before := storetest.Ask[int](t, d, `SELECT count(*) FROM operator_audit`)
		proxy.CutAfter(storetest.Commit, 1)
		got := through.run(t, args...)
		proxy.Restart()
		if after := storetest.Ask[int](t, d, `SELECT count(*) FROM operator_audit`); after != before+1 {
			t.Errorf("%s: %d audit entries, want 1: %+v", name, after-before, got)
		}
		switch {
		case strings.Contains(got.stderr, "nothing was changed"):
			t.Errorf("%s: %s", name, got.stderr)
		case got.code == ctl.ExitOK && got.stderr == "":
		case got.code != ctl.ExitFailed || !strings.Contains(got.stderr, "the change was committed, but its result cannot be shown: "):
			t.Errorf("%s: %+v", name, got)
		}
		for _, prefix := range shown {
			if strings.HasPrefix(name, prefix) && got.code != ctl.ExitOK {
				t.Errorf("the output does not contain the key %s: %s", name, got.stderr)
			}
		}
		if args[0] == "key" && args[1] != "revoke" && !strings.Contains(got.stdout, "gw_live_") {
			t.Errorf("%s shows no key: %+v", name, got)
		}
	}
	// A command that reaches no database changes nothing.
	proxy.Stop()
	proxy.CutAll()
	if got := through.run(t, "key", "create", "--company", "Acme"); got.code != ctl.ExitFailed || !strings.Contains(got.stderr, "nothing was changed") {
		t.Errorf("%+v", got)
	}
}

// The connection to Postgres is lost between two commits of a command that commits in steps. The command reports that it is not
// finished, and not that nothing was changed.
func TestOperator_DatabaseIsLostBetweenSteps(t *testing.T) {
	t.Parallel()
	by, d := newOperator(t)
	by.must(t, "company", "create", "--name", "Acme", "--default-from", "billing@acme.example")
	company := storetest.Ask[uuid.UUID](t, d, `SELECT id FROM companies`)
	old, err := keyring.Parse(encryptionKey("k1", 1))
	if err != nil {
		t.Fatal(err)
	}
	encrypted, err := old.Seal(company, "52998224725")
	if err != nil {
		t.Fatal(err)
	}
	proxy := storetest.NewProxy(t, d)
	through := operator{databaseURL: proxy.URL, env: map[string]string{"CPF_CNPJ_KEYS": encryptionKey("k2", 2) + "," + encryptionKey("k1", 1), "STORAGE_URL": "file://" + t.TempDir()}}
	unfinished := func(got outcome) bool {
		return got.code == ctl.ExitFailed && strings.Contains(got.stderr, "not finished: run this again") && !strings.Contains(got.stderr, "nothing was changed")
	}
	seen := false
	for commit := 1; ; commit++ {
		id := d.Accept(t, company, func(e *outbox.NewEmail) { e.CPFCNPJ = encrypted })
		proxy.CutAfter(storetest.Commit, commit)
		got := through.run(t, "encryption", "rotate", "--reason", "yearly")
		proxy.Restart()
		if got.code == ctl.ExitOK {
			break
		}
		changed := storetest.Ask[bool](t, d, `SELECT cpf_cnpj_enc <> $2 FROM email_outbox WHERE id = $1`, id, encrypted)
		seen = seen || changed && unfinished(got)
		if changed && !unfinished(got) && !strings.Contains(got.stderr, "may have been committed") {
			t.Errorf("rotate, %d commits: %+v", commit, got)
		}
	}
	if !seen {
		t.Error("every rotation completed: the test has interrupted none")
	}

	// Before an erasure has begun there is nothing to continue.
	seen = false
	for commit := 1; !seen; commit++ {
		proxy.CutAfter(storetest.Commit, commit)
		got := through.run(t, "person", "erase", "--company", "Acme", "--email", "ana@example.com", "--reason", "request", "--yes")
		proxy.Restart()
		if got.code == ctl.ExitOK {
			t.Fatal("every erasure completed: the test has interrupted none")
		}
		begun := storetest.Ask[bool](t, d, `SELECT EXISTS (SELECT FROM person_erasures)`)
		seen = begun && unfinished(got)
		if unfinished(got) != begun && !strings.Contains(got.stderr, "may have been committed") {
			t.Errorf("erase, %d commits, begun %v: %+v", commit, begun, got)
		}
	}
}
