package ctl_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"email-gateway/api/internal/ctl"
	"email-gateway/api/internal/ctl/goldentest"
	"email-gateway/schema"
	"email-gateway/shared/store/storetest"
)

// newRole creates a database role with the attributes until the test ends. Roles are global
// to the server, so the name gets a unique suffix.
func newRole(t *testing.T, d storetest.Database, name, attributes string) string {
	t.Helper()
	role := name + "_" + uuid.NewString()[:8]
	if _, err := d.SQL.ExecContext(t.Context(), `CREATE ROLE `+role+` `+attributes); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, end := range []string{`DROP OWNED BY ` + role, `DROP ROLE ` + role} {
			if _, err := d.SQL.Exec(end); err != nil {
				t.Error(err)
			}
		}
	})
	return role
}

// A session that allows, lists and revokes a program, as printed.
func TestProgram_InText(t *testing.T) {
	t.Parallel()
	o, d := newOperator(t)
	if err := schema.Roles(t.Context(), d.SQL); err != nil {
		t.Fatal(err)
	}
	works, lost := newRole(t, d, "recruiting", "LOGIN IN ROLE gateway_program"), newRole(t, d, "reporting", "LOGIN")
	o.must(t, "company", "create", "--name", "Acme", "--default-from", "billing@acme.example")
	var session strings.Builder
	do := func(args ...string) {
		t.Helper()
		session.WriteString("$ gatewayctl " + strings.Join(args, " ") + "\n" + o.must(t, args...) + "\n")
	}
	do("program", "list")
	do("program", "allow", works, "--company", "Acme", "--reason", "reminders")
	do("program", "allow", lost, "--company", "Acme")
	if _, err := d.SQL.ExecContext(t.Context(), `INSERT INTO outbox_programs (role_name, company_id) SELECT 'switched_off', id FROM companies`); err != nil {
		t.Fatal(err)
	}
	if got := o.offered(t, strings.Fields("program allow recruiting_")...); !slices.Contains(got, works) || slices.Contains(got, lost) {
		t.Errorf("offered are %q, want %s among them", got, works)
	}
	if got := o.offered(t, append(strings.Fields("program revoke --company Acme --reason x"), works[:len(works)-1])...); !slices.Equal(got, []string{works}) {
		t.Errorf("offered are %q, want %s", got, works)
	}
	do("program", "list", "--company", "Acme")
	if _, err := d.SQL.ExecContext(t.Context(), `GRANT CREATE ON SCHEMA public TO `+works); err != nil {
		t.Fatal(err)
	}
	do("program", "allow", works, "--company", "Acme")
	do("program", "revoke", works, "--company", "Acme", "--reason", "switched off")
	goldentest.Compare(t, "program", stable(strings.NewReplacer(works, "recruiting_00000000", lost, "reporting_00000000").Replace(session.String())))
	if entries := o.must(t, "audit", "list", "--action", "program"); strings.Count(entries, "program.allow") != 2 || strings.Count(entries, "program.revoke") != 1 {
		t.Errorf("the audit log has\n%s\nwant program.allow twice and program.revoke once", entries)
	}
}

func TestProgram_JSON(t *testing.T) {
	t.Parallel()
	o, d := newOperator(t)
	if err := schema.Roles(t.Context(), d.SQL); err != nil {
		t.Fatal(err)
	}
	role := newRole(t, d, "recruiting", "LOGIN IN ROLE gateway_program")
	for _, name := range []string{"Acme", "Beta"} {
		o.must(t, "company", "create", "--name", name, "--default-from", "billing@acme.example")
	}
	type leave struct {
		Role, Company, CompanyID, CreatedAt, Problem string
		RoleExists, Granted, Creates, CreatesSchemas bool
	}
	var allowed leave
	o.decode(t, &allowed, "program", "allow", role, "--company", "Acme")
	if allowed.Role != role || allowed.Company != "Acme" || allowed.CompanyID == "" || allowed.CreatedAt == "" || !allowed.RoleExists || !allowed.Granted || allowed.Creates || allowed.CreatesSchemas || allowed.Problem != "" {
		t.Errorf("%+v", allowed)
	}
	for company, want := range map[string]int{"Acme": 1, "Beta": 0} {
		var list struct{ Programs []leave }
		if o.decode(t, &list, "program", "list", "--company", company); list.Programs == nil || len(list.Programs) != want {
			t.Errorf("of %s: %+v", company, list)
		}
	}
	for want, args := range map[string][]string{
		`database role "nobody_at_all" does not exist`:       {"program", "allow", "nobody_at_all", "--company", "Acme"},
		"role \"" + role + "\" may not write emails of Beta": {"program", "revoke", role, "--company", "Beta", "--reason", "x"},
	} {
		if got := o.run(t, args...); got.code != ctl.ExitFailed || !strings.Contains(got.stderr, want) {
			t.Errorf("%q: %+v", args, got)
		}
	}
	exec := func(statement string) {
		t.Helper()
		if _, err := d.SQL.ExecContext(t.Context(), `DO $$ BEGIN EXECUTE format('`+statement+`', current_database()); END $$`); err != nil {
			t.Fatal(err)
		}
	}
	exec(`GRANT CREATE ON DATABASE %I TO ` + role)
	var list struct{ Programs []leave }
	o.decode(t, &list, "program", "list")
	if len(list.Programs) != 1 || !list.Programs[0].CreatesSchemas || !strings.Contains(list.Programs[0].Problem, "may create schemas: REVOKE CREATE ON DATABASE") {
		t.Errorf("a role that may create schemas: %+v", list)
	}
	exec(`REVOKE CREATE ON DATABASE %I FROM ` + role)
	var revoked leave
	o.decode(t, &revoked, "program", "revoke", role, "--company", "Acme", "--reason", "x")
	if revoked.Role != role || revoked.Company != "Acme" {
		t.Errorf("%+v", revoked)
	}
}
