package schema

import (
	"context"
	"database/sql"
	_ "embed" // for roles.sql
	"errors"
	"fmt"

	"github.com/lib/pq"
)

//go:embed roles.sql
var rolesSQL string

// Roles creates a database role for each program, with only the grants that its statements need. It
// may run repeatedly, and must run after Up: new tables have no grants. The caller must be the
// tables' owner, and the first time a role that may create roles. Any number of callers may run it
// concurrently, also with Up: Postgres refuses concurrent changes of one table's grants.
func Roles(ctx context.Context, db *sql.DB) (err error) {
	var lock migrationLock
	if err := lock.acquire(ctx, db); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Unlock(ctx, db)) }()
	if _, err := db.ExecContext(ctx, rolesSQL); err != nil {
		return fmt.Errorf("grant roles: %w", err)
	}
	return nil
}

// LoginRoles returns the roles with which programs and people connect.
func LoginRoles() []string {
	return []string{"gateway_api", "gateway_dispatcher", "gateway_worker", "gateway_operator", "gateway_privacy"}
}

// SetPassword sets a role's password. The caller must be allowed to alter the role.
func SetPassword(ctx context.Context, db *sql.DB, role, password string) error {
	// The driver's error contains Postgres's message, but not the statement.
	if _, err := db.ExecContext(ctx, "ALTER ROLE "+pq.QuoteIdentifier(role)+" PASSWORD "+pq.QuoteLiteral(password)); err != nil {
		return fmt.Errorf("set the password of %s: %w", role, err)
	}
	return nil
}
