package ctl_test

import (
	"encoding/json"
	"strings"
	"testing"

	"email-gateway/api/internal/ctl"
)

// Each webhook command has its effect; only the two commands that create a secret show it.
func TestWebhook(t *testing.T) {
	t.Parallel()
	tenant, _, _ := newTenant(t)
	var made, test struct{ ID, Secret string }
	decode := func(into any, args ...string) {
		t.Helper()
		if err := json.Unmarshal([]byte(tenant.must(t, append([]string{"webhook"}, append(args, "--json")...)...)), into); err != nil {
			t.Fatal(err)
		}
	}
	decode(&made, "create", "https://erp.acme.example/hooks", "--types", "email.bounced")
	if !strings.HasPrefix(made.Secret, "whsec_") {
		t.Fatalf("%+v", made)
	}
	decode(&test, "test", made.ID)
	for _, step := range []struct {
		args []string
		want string
	}{
		{[]string{"list"}, "https://erp.acme.example/hooks"},
		{[]string{"show", made.ID}, "email.bounced"},
		{[]string{"update", made.ID, "--types", "email.sent", "--url", "https://erp.acme.example/v2"}, "email.sent"},
		{[]string{"update", made.ID, "--description", "ERP of Acme", "--json"}, "ERP of Acme"},
		{[]string{"update", made.ID, "--description", "", "--types", ""}, "all"},
		{[]string{"deliveries", made.ID, "--status", "retrying"}, "webhook.test"},
		{[]string{"retry", made.ID, test.ID}, "webhook.test"},
		{[]string{"replay", made.ID, "--failed"}, "RUNNING"},
		{[]string{"rotate-secret", made.ID}, "whsec_"},
		{[]string{"disable", made.ID}, "REQUESTED"},
		{[]string{"enable", made.ID}, "ENABLED"},
		{[]string{"delete", made.ID}, "Deleted " + made.ID},
		{[]string{"list"}, "No webhook endpoints found."},
	} {
		got := tenant.must(t, append([]string{"webhook"}, step.args...)...)
		if !strings.Contains(got, step.want) || strings.Contains(got, made.Secret) {
			t.Errorf("%v: %s, want %s", step.args, got, step.want)
		}
	}
	if got := tenant.run(t, "webhook", "show", noID); got.code == ctl.ExitOK || !strings.Contains(got.stderr, "NOT_FOUND: there is no such webhook endpoint") {
		t.Errorf("%+v", got)
	}
}
