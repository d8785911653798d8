package schema

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/lib/pq"
)

// usedElsewhereSQL reads Postgres's system catalogs, which every role may read, and locks nothing. A role that has any
// right in a database has a row in pg_shdepend: roles.sql grants each one the schema.
const usedElsewhereSQL = `
SELECT r.rolname, array_agg(DISTINCT b.datname::text ORDER BY b.datname::text)
FROM pg_shdepend d JOIN pg_roles r ON r.oid = d.refobjid JOIN pg_database b ON b.oid = d.dbid
WHERE d.refclassid = 'pg_authid'::regclass AND b.datname <> current_database() AND r.rolname = ANY ($1)
GROUP BY r.rolname`

// UsedElsewhere returns the login roles that other databases of the server use, with the names of these databases: a
// role and its password belong to the server.
func UsedElsewhere(ctx context.Context, db *sql.DB) (map[string][]string, error) {
	rows, err := db.QueryContext(ctx, usedElsewhereSQL, pq.Array(LoginRoles()))
	if err != nil {
		return nil, fmt.Errorf("look for roles of other databases: %w", err)
	}
	defer rows.Close()
	databases := map[string][]string{}
	for rows.Next() {
		var role string
		var names []string
		if err := rows.Scan(&role, pq.Array(&names)); err != nil {
			return nil, fmt.Errorf("look for roles of other databases: %w", err)
		}
		databases[role] = names
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("look for roles of other databases: %w", err)
	}
	return databases, nil
}

// SetPasswords sets the passwords of roles, by their names. The caller must be allowed to alter the roles. Any number of
// callers may run it concurrently, also with Up and Roles: Postgres refuses concurrent changes of one role.
func SetPasswords(ctx context.Context, db *sql.DB, passwords map[string]string) (err error) {
	if len(passwords) == 0 {
		return nil
	}
	var lock migrationLock
	if err := lock.acquire(ctx, db); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Unlock(ctx, db)) }()
	for role, password := range passwords {
		// The driver's error contains Postgres's message, but not the statement.
		if _, err := db.ExecContext(ctx, "ALTER ROLE "+pq.QuoteIdentifier(role)+" PASSWORD "+pq.QuoteLiteral(password)); err != nil {
			return fmt.Errorf("set the password of %s: %w", role, err)
		}
	}
	return nil
}
