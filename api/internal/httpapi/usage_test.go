package httpapi_test

import (
	"encoding/csv"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"email-gateway/shared/store/storetest"
)

func TestUsage(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	now := storetest.Ask[time.Time](t, g.Database, `SELECT now()`).UTC()
	first := time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, time.UTC)
	last := first.AddDate(0, -1, 0)
	if _, err := g.SQL.ExecContext(t.Context(), `UPDATE companies SET created_at = $2 WHERE id = $1`, g.Company, last.Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	g.accept(t, emailBody(nil))
	g.Programs.claim(t, g.accept(t, emailBody(nil)))
	g.Programs.fold(t)
	if _, err := g.SQL.ExecContext(t.Context(), `INSERT INTO usage_days (company_id, day, accepted, sent, delivered, bounced, complained, body_bytes)
		VALUES ($1, $2, 10, 9, 8, 7, 6, 5), ($1, $3, 1, 2, 3, 4, 5, 6), ($4, $2, 100, 100, 100, 100, 100, 100)`,
		g.Company, last, first.AddDate(0, 0, -1), g.Database.Company(t)); err != nil {
		t.Fatal(err)
	}
	current := g.do(t, call{Path: "/v1/usage"}).json(t)
	days := current["days"].([]any)
	if current["month"] != now.Format("2006-01") || current["final"] != false || current["countedFrom"] != nil || len(days) != now.Day() {
		t.Errorf("this month: %v", current)
	}
	if today := days[len(days)-1].(map[string]any); today["date"] != now.Format(time.DateOnly) || today["accepted"] != 2.0 || today["bytes"] == 0.0 {
		t.Errorf("today: %v", today)
	}
	perDay := map[string]any{}
	for _, q := range current["quotas"].([]any) {
		if q := q.(map[string]any); q["quota"] == "emails_per_day" {
			perDay = q
		}
	}
	if perDay["use"] != 2.0 || perDay["limit"] != 1000000.0 || perDay["reset"] != now.Truncate(24*time.Hour).AddDate(0, 0, 1).Format(time.RFC3339) {
		t.Errorf("quotas: %v", current["quotas"])
	}

	query := "/v1/usage?month=" + last.Format("2006-01")
	over := g.do(t, call{Path: query}).json(t)
	total := over["total"].(map[string]any)
	want := map[string]any{"accepted": 11.0, "sent": 11.0, "delivered": 11.0, "bounced": 11.0, "complained": 11.0, "mailings": 0.0, "bytes": 11.0}
	for name, n := range want {
		if total[name] != n {
			t.Errorf("%s is %v, want %v", name, total[name], n)
		}
	}
	if over["final"] != now.After(first.Add(time.Hour)) || len(over["days"].([]any)) != first.AddDate(0, 0, -1).Day() {
		t.Errorf("last month: %v", over)
	}
	for _, c := range []call{{Path: query + "&format=csv"}, {Path: query, Header: map[string]string{"Accept": "application/json;q=0, text/csv"}}} {
		r := g.do(t, c)
		if r.Status != http.StatusOK || r.Header.Get("Content-Disposition") != `attachment; filename="usage-`+last.Format("2006-01")+`.csv"` ||
			!strings.HasPrefix(r.Header.Get("Content-Type"), "text/csv") || !strings.HasSuffix(r.Body, "\r\n") {
			t.Fatalf("%d %v %q", r.Status, r.Header, r.Body)
		}
		rows, err := csv.NewReader(strings.NewReader(r.Body)).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		end := len(rows) - 1
		if got := strings.Join(rows[0], ","); got != "date,accepted,sent,delivered,bounced,complained,mailings,bytes" {
			t.Errorf("columns %s", got)
		}
		if got := strings.Join(rows[1], ","); got != last.Format(time.DateOnly)+",10,9,8,7,6,0,5" || end != first.AddDate(0, 0, -1).Day()+1 {
			t.Errorf("first day %s of %d", got, end-1)
		}
		if got := strings.Join(rows[end], ","); got != "total,11,11,11,11,11,0,11" {
			t.Errorf("total %s", got)
		}
	}
	if r := g.do(t, call{Path: query + "&format=json", Header: map[string]string{"Accept": "text/csv"}}); r.json(t)["month"] != last.Format("2006-01") {
		t.Errorf("format overrides Accept: %s", r.Body)
	}
}

func TestUsage_Refused(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	now := storetest.Ask[time.Time](t, g.Database, `SELECT now()`).UTC()
	next := time.Date(now.Year(), now.Month()+1, 1, 0, 0, 0, 0, time.UTC).Format("2006-01")
	for query, want := range map[string][2]string{
		"month=2026":                  {"month", "INVALID_MONTH"},
		"month=2026-13":               {"month", "INVALID_MONTH"},
		"month=2026-1":                {"month", "INVALID_MONTH"},
		"month=2026-01-01":            {"month", "INVALID_MONTH"},
		"month=%2B2026-01":            {"month", "INVALID_MONTH"},
		"month=last":                  {"month", "INVALID_MONTH"},
		"month=0000-01":               {"month", "OUT_OF_RANGE"},
		"month=9999-12":               {"month", "OUT_OF_RANGE"},
		"month=" + next:               {"month", "OUT_OF_RANGE"},
		"month=1999-12":               {"month", "OUT_OF_RANGE"}, // not counted
		"month=2026-01&month=2026-02": {"month", "DUPLICATE_PARAMETER"},
		"format=xml":                  {"format", "NOT_ALLOWED"},
		"moth=2026-01":                {"moth", "UNKNOWN_PARAMETER"},
	} {
		r := g.do(t, call{Path: "/v1/usage?" + query})
		if r.Status != http.StatusUnprocessableEntity {
			t.Errorf("%s: %d %s", query, r.Status, r.Body)
			continue
		}
		if fault := r.json(t)["errors"].([]any)[0].(map[string]any); fault["field"] != want[0] || fault["code"] != want[1] {
			t.Errorf("%s: %v", query, fault)
		}
	}
	for _, scope := range []string{"emails:send", "mailings:read"} {
		if r := g.do(t, call{Path: "/v1/usage", Key: g.newKey(t, g.Company, scopes(scope)).String()}); r.Status != http.StatusForbidden {
			t.Errorf("with %s: %d", scope, r.Status)
		}
	}
	counted := g.do(t, call{Path: "/v1/usage", Key: g.newKey(t, g.Company, scopes("emails:read")).String()}).json(t)
	if from, _ := counted["countedFrom"].(string); !strings.HasPrefix(from, strconv.Itoa(now.Year())) || len(counted["days"].([]any)) != 1 {
		t.Errorf("a company of today: %v", counted)
	}
}
