package httpapi_test

import (
	"fmt"
	"strings"
	"testing"

	"email-gateway/shared/store/tenant"
)

// scopes sets the scopes of a key.
func scopes(names ...string) func(*tenant.APIKey) {
	return func(k *tenant.APIKey) { k.Scopes = names }
}

// owner is the condition for rows of a company ($1), for tables without a column company_id. "" is a table
// without owner.
var owner = map[string]string{
	"companies":        "id = $1",
	"email_events":     "email_log_id IN (SELECT outbox_id FROM email_logs WHERE company_id = $1)",
	"mailing_entries":  "mailing_id IN (SELECT id FROM mailings WHERE company_id = $1)",
	"mailing_feedback": "mailing_id IN (SELECT id FROM mailings WHERE company_id = $1)",
	"mailing_rejects":  "mailing_id IN (SELECT id FROM mailings WHERE company_id = $1)",
	// SES events change the email that they name; no request with a tenant's key reaches these tables.
	"ses_events": "", "provider_gate": "", "provider_refusals": "", "process_status": "", "dispatch_batches": "", "dropped_tasks": "", "mailing_marks": "", "goose_db_version": "", "goose_migration_lock": "", "owner_locks": "", "quota_defaults": "", "event_positions": "",
	"installation": "", "reputation_defaults": "", "reputation_guard": "",
}

// tenantState is a fingerprint of every row of the gateway's own company, one line per table.
func tenantState(tb testing.TB, g *gateway) string {
	tb.Helper()
	rows, err := g.SQL.QueryContext(tb.Context(), `
SELECT t.tablename, EXISTS (SELECT FROM information_schema.columns c
                            WHERE c.table_schema = 'public' AND c.table_name = t.tablename AND c.column_name = 'company_id')
FROM pg_tables t WHERE t.schemaname = 'public' AND NOT EXISTS (SELECT FROM pg_class p WHERE p.relname = t.tablename AND p.relispartition) ORDER BY 1`)
	if err != nil {
		tb.Fatal(err)
	}
	defer rows.Close()
	var parts []string
	for rows.Next() {
		var table string
		var hasCompany bool
		if err := rows.Scan(&table, &hasCompany); err != nil {
			tb.Fatal(err)
		}
		condition, known := owner[table]
		switch {
		case hasCompany:
			condition = "company_id = $1"
		case !known:
			tb.Errorf("the map owner has no entry for the table %s", table)
		}
		if condition != "" {
			parts = append(parts, fmt.Sprintf(
				`SELECT '%[1]s ' || count(*) || ' ' || md5(coalesce(string_agg(x::text, '' ORDER BY x::text), '')) FROM %[1]s x WHERE %[2]s`, table, condition))
		}
	}
	if err := rows.Err(); err != nil {
		tb.Fatal(err)
	}
	var state string
	query := "SELECT string_agg(line, E'\n' ORDER BY line) FROM (" + strings.Join(parts, " UNION ALL ") + ") AS all_tables (line)"
	if err := g.SQL.QueryRowContext(tb.Context(), query, g.Company).Scan(&state); err != nil {
		tb.Fatal(err)
	}
	return state
}
