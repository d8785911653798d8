package ctl_test

import (
	"bytes"
	"encoding/base64"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"email-gateway/api/internal/ctl"
	"email-gateway/shared/email"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/suppression"
)

func TestPerson(t *testing.T) {
	t.Parallel()
	by, d := newOperator(t)
	by.must(t, "company", "create", "--name", "Acme", "--default-from", "Acme <billing@acme.example>")
	company, err := d.Store.FindCompany(t.Context(), "Acme")
	if err != nil {
		t.Fatal(err)
	}
	d.Accept(t, company.ID, func(e *outbox.NewEmail) {
		e.Job.To, e.Job.Recipient = "maria@cliente.example", email.JobRecipient{CPFCNPJHash: email.HashTaxID("52998224725", nil), Email: "maria@cliente.example"}
	})
	erase := []string{"person", "erase", "--company", "Acme", "--cpf-cnpj", "529.982.247-25", "--reason", "asked for it"}
	if got := by.run(t, erase...); got.code != ctl.ExitUsage && got.code != ctl.ExitFailed || !strings.Contains(got.stderr, "CPF_CNPJ_KEYS") {
		t.Errorf("without keys: %+v", got)
	}
	by.env = map[string]string{
		"CPF_CNPJ_KEYS": "k:" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7}, 32)), "STORAGE_URL": "file://" + t.TempDir(),
	}
	for _, wrong := range [][]string{
		{"person", "erase", "--company", "Acme", "--reason", "x"},
		{"person", "erase", "--company", "Acme", "--reason", "x", "--cpf-cnpj", "529.982.247-26"},
		{"person", "erase", "--company", "Acme", "--reason", "x", "--cpf-cnpj", "529.982.247-25", "--email", "a@b.example"},
		{"person", "erase", "--company", "Acme", "--reason", "x", "--email", "nobody"},
		{"person", "erase", "--company", "Acme", "--email", "a@b.example"},
		{"person", "export", "--company", "Acme", "--email", "a@b.example"},
	} {
		if got := by.run(t, wrong...); got.code != ctl.ExitUsage {
			t.Errorf("%q: %+v", wrong, got)
		}
	}

	out := filepath.Join(t.TempDir(), "maria.json")
	by.stdin = "maria@cliente.example\n"
	// On a busy machine its progress is on stderr.
	if got := by.run(t, "person", "export", "--company", "Acme", "--email", "-", "--out", out); got.code != ctl.ExitOK || !strings.Contains(got.stdout, "emails              1") {
		t.Errorf("export: %+v", got)
	}
	info, err := os.Stat(out)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if got := by.run(t, "person", "export", "--company", "Acme", "--cpf-cnpj", "52998224725", "--out", out); got.code != ctl.ExitUsage {
		t.Errorf("export to an existing file: %+v", got)
	}
	if n := strings.Count(by.must(t, "audit", "list", "--action", "person"), "person.export"); n != 1 {
		t.Errorf("%d audit entries of exports, want 1: none of the one to an existing file", n)
	}
	if got := by.run(t, erase...); got.code != ctl.ExitFailed || !strings.Contains(got.stderr, "1 row and file would be erased, with 1 address maria@cliente.example;") {
		t.Errorf("without --yes: %+v", got)
	}
	// Simulate a dispatcher that checks immediately.
	if _, err := d.SQL.ExecContext(t.Context(), `ALTER TABLE erased_tasks ALTER done_at SET DEFAULT now()`); err != nil {
		t.Fatal(err)
	}
	var done map[string]any
	by.decode(t, &done, append(erase, "--yes")...)
	if done["emails"] != 1.0 || done["cancelled"] != 1.0 || done["busy"] != 0.0 {
		t.Errorf("%v", done)
	}
	receipt, ok := done["receipt"].(map[string]any)
	if !ok || !slices.Equal(receipt["addresses"].([]any), []any{"maria@cliente.example"}) ||
		!reflect.DeepEqual(receipt["rows"], []any{
			map[string]any{"address": "maria@cliente.example", "table": "email_logs", "rows": 1.0},
			map[string]any{"address": "maria@cliente.example", "table": "email_outbox", "rows": 1.0},
		}) {
		t.Errorf("receipt: %v", done["receipt"])
	}
	note := "called"
	if err := d.Store.Suppress(t.Context(), company.ID, suppression.Suppression{Address: "maria@cliente.example", Reason: suppression.Manual, Note: &note}); err != nil {
		t.Fatal(err)
	}
	output := by.must(t, "person", "erase", "--company", "Acme", "--email", "Maria@cliente.example", "--reason", "asked for it", "--yes")
	for _, line := range []string{"maria@cliente.example  suppressions  1", "maria@cliente.example stays suppressed, without a note", "0 tasks were removed from Redis"} {
		if !strings.Contains(output, line) {
			t.Errorf("the receipt does not contain %q:\n%s", line, output)
		}
	}
	audit := by.must(t, "audit", "list", "--action", "person", "--json")
	for _, action := range []string{"person.export", "person.erase", "person.erased"} {
		if !strings.Contains(audit, `"action": "`+action+`"`) {
			t.Errorf("no %s in %s", action, audit)
		}
	}
	for _, word := range []string{"maria", "52998224725", email.HashTaxID("52998224725", nil)} {
		if strings.Contains(audit, word) {
			t.Errorf("the audit log contains %s: %s", word, audit)
		}
	}
}
