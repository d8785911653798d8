package ctl_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"email-gateway/api/internal/ctl"
)

// usageOf is what both commands print with --json.
type usageOf struct {
	CompanyID, Company, Month string
	CountedFrom               *time.Time
	Final                     bool
	Total                     struct{ Accepted, Sent, Bytes int64 }
	Days                      []struct {
		Date     string
		Accepted int64
	}
	Quotas []struct{ Quota string }
}

// Tenants see their usage by the HTTP API, operators that of any company in the database.
func TestUsageOfMonth(t *testing.T) {
	t.Parallel()
	tenant, o, d := newTenant(t)
	company := count(t, d, `SELECT count(*) FROM companies`)
	if company != 1 {
		t.Fatalf("%d companies", company)
	}
	today := time.Now().UTC()
	if _, err := d.SQL.ExecContext(t.Context(), `INSERT INTO usage_days (company_id, day, accepted, sent, body_bytes)
		SELECT id, (now() AT TIME ZONE 'UTC')::date, 1300, 1290, 2812345 FROM companies`); err != nil {
		t.Fatal(err)
	}
	var name, id string
	if err := d.SQL.QueryRowContext(t.Context(), `SELECT name, id FROM companies`).Scan(&name, &id); err != nil {
		t.Fatal(err)
	}
	var theirs, ours usageOf
	if err := json.Unmarshal([]byte(tenant.must(t, "usage", "--json")), &theirs); err != nil {
		t.Fatal(err)
	}
	if theirs.Total.Accepted != 1300 || theirs.Total.Bytes != 2812345 || len(theirs.Days) != 1 || len(theirs.Quotas) != 8 || theirs.Final || theirs.CompanyID != "" {
		t.Errorf("%+v", theirs)
	}
	if err := json.Unmarshal([]byte(o.must(t, "company", "usage", name, "--month", today.Format("2006-01"), "--json")), &ours); err != nil {
		t.Fatal(err)
	}
	if ours.CompanyID != id || ours.Company != name || ours.Total != theirs.Total || ours.Month != theirs.Month || len(ours.Days) != 1 || len(ours.Quotas) != 8 {
		t.Errorf("%+v", ours)
	}
	for _, text := range []string{tenant.must(t, "usage"), o.must(t, "company", "usage", name)} {
		for _, part := range []string{today.Format("2006-01"), "ACCEPTED", "1,300", "2,812,345", "emails_per_day", "1,000,000", "Counted from"} {
			if !strings.Contains(text, part) {
				t.Errorf("%q is missing in\n%s", part, text)
			}
		}
	}
	if got := tenant.must(t, "usage", "--csv"); !strings.HasPrefix(got, "date,accepted,") || !strings.Contains(got, "\ntotal,1300,1290,0,0,0,0,2812345") {
		t.Errorf("%q", got)
	}
	for _, args := range [][]string{{"--month", "2026-13"}, {"--month", "1999-01"}, {"--month", "9998-01"}} {
		if got := tenant.run(t, append([]string{"usage"}, args...)...); got.code != ctl.ExitFailed || !strings.Contains(got.stderr, "month") {
			t.Errorf("%v: %+v", args, got)
		}
		if got := o.run(t, append([]string{"company", "usage", name}, args...)...); got.code != ctl.ExitUsage || !strings.Contains(got.stderr, "--month") {
			t.Errorf("%v: %+v", args, got)
		}
	}
	if got := tenant.run(t, "usage", "--csv", "--json"); got.code != ctl.ExitUsage {
		t.Errorf("%+v", got)
	}
	if got := o.run(t, "company", "usage", "nobody"); got.code != ctl.ExitFailed {
		t.Errorf("%+v", got)
	}
}
