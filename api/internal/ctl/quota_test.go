package ctl_test

import (
	"strings"
	"testing"

	"email-gateway/api/internal/ctl"
)

type quotas struct {
	CompanyID, Company string
	Quotas             []struct {
		Quota      string
		Own        bool
		Limit, Use int64
		Reset      *string
	}
}

func TestCompanyQuota(t *testing.T) {
	t.Parallel()
	o, d := newOperator(t)
	var made company
	o.decode(t, &made, "company", "create", "--name", "Acme", "--default-from", "billing@acme.example")
	var got quotas
	o.decode(t, &got, "company", "quota", "set", "Acme", "emails_per_day=50000", "recipients=0", "--reason", "their contract")
	if got.Company != "Acme" || got.CompanyID != made.ID || len(got.Quotas) != 8 {
		t.Errorf("%+v", got)
	}
	o.decode(t, &got, "company", "quota", "set", "Acme", "recipients=default")
	o.decode(t, &got, "company", "quota", "show", "Acme")
	for _, q := range got.Quotas {
		want, own := map[string]int64{"emails_per_day": 50000, "scheduled_emails": 100_000, "running_mailings": 20, "recipients": 10_000_000}[q.Quota], q.Quota == "emails_per_day"
		if want != 0 && q.Limit != want || q.Own != own || (q.Reset != nil) != strings.HasSuffix(q.Quota, "_per_day") {
			t.Errorf("%+v", q)
		}
	}
	if n := count(t, d, `SELECT count(*) FROM operator_audit WHERE action = 'company.quota'`); n != 2 {
		t.Errorf("%d changes in the audit", n)
	}
	text := o.must(t, "company", "quota", "show", "Acme")
	for _, part := range []string{"emails_per_day", "50,000", "company quota set", "stored_body_bytes", "10,737,418,240", "installation"} {
		if !strings.Contains(text, part) {
			t.Errorf("%q is missing in\n%s", part, text)
		}
	}
	for name, args := range map[string][]string{
		"no quota":       {"Acme"},
		"no company":     {},
		"unknown quota":  {"Acme", "emails=5"},
		"empty name":     {"Acme", "=5"},
		"no limit":       {"Acme", "recipients"},
		"empty limit":    {"Acme", "recipients="},
		"negative":       {"Acme", "recipients=-1"},
		"sign":           {"Acme", "recipients=+1"},
		"fraction":       {"Acme", "recipients=1.5"},
		"too large":      {"Acme", "recipients=9223372036854775808"},
		"word":           {"Acme", "recipients=many"},
		"twice":          {"Acme", "recipients=1", "recipients=2"},
		"one bad of two": {"Acme", "recipients=1", "running_mailings=x"},
	} {
		if got := o.run(t, append([]string{"company", "quota", "set"}, args...)...); got.code != ctl.ExitUsage || got.stderr == "" {
			t.Errorf("%s: exit code %d, %s%s", name, got.code, got.stdout, got.stderr)
		}
	}
	for _, args := range [][]string{{"set", "Nobody", "recipients=1"}, {"show", "Nobody"}} {
		if got := o.run(t, append([]string{"company", "quota"}, args...)...); got.code == 0 || !strings.Contains(got.stderr, "Nobody") {
			t.Errorf("%q: exit code %d, %s%s", args, got.code, got.stdout, got.stderr)
		}
	}
	if n := count(t, d, `SELECT count(*) FROM operator_audit WHERE action = 'company.quota'`); n != 2 {
		t.Errorf("%d changes in the audit", n)
	}
}
