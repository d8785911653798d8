package ctl_test

import (
	"strings"
	"testing"

	"email-gateway/api/internal/ctl"
)

// An operator disables an endpoint, which its company cannot enable then, and enables it again. Both are in
// the audit log.
func TestCompanyWebhook(t *testing.T) {
	t.Parallel()
	tenant, by, d := newTenant(t)
	var made struct{ ID, Secret string }
	tenant.unmarshal(t, &made, "webhook", "create", "https://erp.acme.example/hooks")
	type view struct {
		Company  string
		Webhooks []struct{ ID, URL, Status, DisabledReason, Health string }
	}
	var got view
	by.unmarshal(t, &got, "company", "webhook", "list", "Acme")
	if got.Company != "Acme" || len(got.Webhooks) != 1 || got.Webhooks[0].ID != made.ID || got.Webhooks[0].Status != "ENABLED" || got.Webhooks[0].Health != "ok" {
		t.Errorf("%+v", got)
	}
	tenant.must(t, "webhook", "disable", made.ID)
	for range 2 { // the second changes nothing
		by.unmarshal(t, &got, "company", "webhook", "disable", "Acme", made.ID, "--reason", "the domain was sold")
		if got.Webhooks[0].Status != "DISABLED" || got.Webhooks[0].DisabledReason != "OPERATOR" {
			t.Errorf("%+v", got)
		}
	}
	if refused := tenant.run(t, "webhook", "enable", made.ID); refused.code != ctl.ExitFailed || !strings.Contains(refused.stderr, "operator") {
		t.Errorf("%+v", refused)
	}
	for range 2 {
		got = view{}
		by.unmarshal(t, &got, "company", "webhook", "enable", "Acme", made.ID)
		if got.Webhooks[0].Status != "ENABLED" || got.Webhooks[0].DisabledReason != "" {
			t.Errorf("%+v", got)
		}
	}
	for action, want := range map[string]int{"webhook.disable": 1, "webhook.enable": 1} {
		if n := count(t, d, `SELECT count(*) FROM operator_audit WHERE action = '`+action+`' AND subject = '`+made.ID+`' AND company_id IS NOT NULL`); n != want {
			t.Errorf("%d audit entries of %s", n, action)
		}
	}
	if n := count(t, d, `SELECT count(*) FROM company_events WHERE type = 'WEBHOOK_DISABLED' AND metadata ->> 'reason' = 'OPERATOR'`); n != 1 {
		t.Errorf("%d events", n)
	}
	if text := by.must(t, "company", "webhook", "list", "Acme"); !strings.Contains(text, "https://erp.acme.example/hooks") || strings.Contains(text, made.Secret) {
		t.Error(text)
	}
	for name, args := range map[string][]string{
		"no reason": {"disable", "Acme", made.ID},
		"no id":     {"disable", "Acme", "x", "--reason", "r"},
		"one word":  {"enable", "Acme"},
	} {
		if got := by.run(t, append([]string{"company", "webhook"}, args...)...); got.code != ctl.ExitUsage {
			t.Errorf("%s: %+v", name, got)
		}
	}
	for _, args := range [][]string{{"list", "No Company"}, {"disable", "Acme", noID, "--reason", "r"}, {"enable", "Acme", noID}} {
		if got := by.run(t, append([]string{"company", "webhook"}, args...)...); got.code != ctl.ExitFailed || got.stderr == "" {
			t.Errorf("%v: %+v", args, got)
		}
	}
}
