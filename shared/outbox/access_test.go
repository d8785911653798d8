package outbox_test

import (
	"database/sql"
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"

	"email-gateway/schema"
	"email-gateway/shared/outbox"
)

// as opens the database for another role.
func (a *agenda) as(t *testing.T, role string) *sql.DB {
	t.Helper()
	u, err := url.Parse(a.URL)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.User(role)
	db, err := sql.Open("postgres", u.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// newRole makes a role that may log in, and its end with the test's.
func (a *agenda) newRole(t *testing.T, memberOf string) string {
	t.Helper()
	role := "program_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	a.exec(t, `CREATE ROLE `+role+` LOGIN`)
	t.Cleanup(func() {
		for _, end := range []string{`DROP OWNED BY ` + role, `DROP ROLE ` + role} {
			if _, err := a.SQL.Exec(end); err != nil {
				t.Error(err)
			}
		}
	})
	if memberOf != "" {
		a.exec(t, `GRANT `+memberOf+` TO `+role)
	}
	return role
}

func forbidden(err error) bool {
	var refused *pq.Error
	return errors.As(err, &refused) && refused.Code == pqerror.InsufficientPrivilege
}

// A tenant's program can write its own company's emails if the tables' owner has permitted it, and
// nothing else.
func TestAccess(t *testing.T) {
	t.Parallel()
	a := newAgenda(t)
	if err := schema.Roles(t.Context(), a.SQL); err != nil {
		t.Fatal(err)
	}
	other, err := outbox.New(outbox.Params{CompanyID: a.Company(t)})
	if err != nil {
		t.Fatal(err)
	}
	group := a.newRole(t, "gateway_program") // those of one team, who log in by other names
	role := a.newRole(t, group)
	stranger := a.as(t, a.newRole(t, ""))
	db := a.as(t, role)
	try := func(o *outbox.Outbox, db *sql.DB) error {
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		about := interview(uuid.NewString(), "REMINDER")
		if _, err := o.Enqueue(t.Context(), tx, about, reminder()); err != nil {
			return err
		}
		if _, err := o.Reschedule(t.Context(), tx, about, reminder().SendAt); err != nil {
			return err
		}
		if _, err := o.Cancel(t.Context(), tx, about); err != nil {
			return err
		}
		return tx.Commit()
	}
	if err := try(a.reminders, db); !forbidden(err) || !strings.Contains(err.Error(), role) {
		t.Errorf("before the owner has granted it: %v", err)
	}
	a.exec(t, `INSERT INTO outbox_programs (role_name, company_id) VALUES ($1, $2)`, group, a.company)
	if err := try(a.reminders, db); err != nil {
		t.Errorf("a granted role: %v", err)
	}
	for what, err := range map[string]error{
		"another company": try(other, db), "a role without a grant": try(a.reminders, stranger),
	} {
		if !forbidden(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	about := interview("42", "REMINDER")
	a.enqueue(t, about, reminder())
	for _, do := range []func(tx *sql.Tx) error{
		func(tx *sql.Tx) error { _, err := other.Cancel(t.Context(), tx, about); return err },
		func(tx *sql.Tx) error {
			_, err := other.Reschedule(t.Context(), tx, about, reminder().SendAt)
			return err
		},
	} {
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := do(tx); !forbidden(err) {
			t.Errorf("another company's: %v", err)
		}
		_ = tx.Rollback()
	}
	for _, statement := range []string{
		`SELECT FROM email_outbox`, `SELECT FROM outbox_aggregates`, `SELECT FROM outbox_programs`, `SELECT FROM companies`,
		`INSERT INTO outbox_programs (role_name, company_id) SELECT current_user, gen_random_uuid()`,
		`SELECT email_gateway_take_key(gen_random_uuid(), 'a', 'b', 'c', gen_random_uuid())`, `SELECT email_gateway_hold(gen_random_uuid())`,
		`SELECT email_gateway_withdraw(gen_random_uuid())`, `SELECT email_gateway_status(gen_random_uuid())`, `SELECT email_gateway_admit(gen_random_uuid())`,
		`SELECT FROM email_gateway_faults('{}')`,
	} {
		if _, err := db.ExecContext(t.Context(), statement); !forbidden(err) {
			t.Errorf("%s: %v", statement, err)
		}
	}
	// A table with the same name in the role's own schema must not hide ours.
	if _, err := db.ExecContext(t.Context(), `CREATE TEMPORARY TABLE outbox_programs AS SELECT $1::text AS role_name, $2::uuid AS company_id`, role, uuid.New()); err != nil {
		t.Fatal(err)
	}
	if err := try(other, db); !forbidden(err) {
		t.Errorf("with an outbox_programs of its own: %v", err)
	}
}

// A role that can create functions in the gateway's schema could have them run by the gateway's
// programs: its first email fails with that explanation.
func TestAccess_SchemaCreateIsRefused(t *testing.T) {
	t.Parallel()
	a := newAgenda(t)
	if err := schema.Roles(t.Context(), a.SQL); err != nil {
		t.Fatal(err)
	}
	role := a.newRole(t, "gateway_program")
	a.exec(t, `INSERT INTO outbox_programs (role_name, company_id) VALUES ($1, $2)`, role, a.company)
	db := a.as(t, role)
	enqueue := func() error {
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		_, err = a.reminders.Enqueue(t.Context(), tx, interview("42", "REMINDER"), reminder())
		return err
	}
	a.exec(t, `GRANT CREATE ON SCHEMA public TO `+role)
	if err := enqueue(); !forbidden(err) {
		t.Errorf("with CREATE on the tables' schema: %v", err)
	}
	a.exec(t, `REVOKE CREATE ON SCHEMA public FROM `+role)
	if err := enqueue(); err != nil {
		t.Error(err)
	}
}
