package schema

import (
	"context"
	"database/sql"
	_ "embed" // for roles.sql
	"fmt"

	"github.com/lib/pq"
)

//go:embed roles.sql
var rolesSQL string

// Roles makes a database role for each program, with what its statements need and
// nothing else. It may run again, and has to after Up: a new table is nobody's. The
// caller must be the tables' owner, and the first time one who may make roles.
func Roles(ctx context.Context, db *sql.DB) error {
	if _, err := db.ExecContext(ctx, rolesSQL); err != nil {
		return fmt.Errorf("grant roles: %w", err)
	}
	return nil
}

// LoginRoles are the roles that programs and people connect as.
func LoginRoles() []string {
	return []string{"gateway_api", "gateway_dispatcher", "gateway_worker", "gateway_operator", "gateway_privacy"}
}

// SetPassword gives a role a password. The caller must be one who may alter the role.
func SetPassword(ctx context.Context, db *sql.DB, role, password string) error {
	// The driver's error holds Postgres's message and never the statement.
	if _, err := db.ExecContext(ctx, "ALTER ROLE "+pq.QuoteIdentifier(role)+" PASSWORD "+pq.QuoteLiteral(password)); err != nil {
		return fmt.Errorf("set the password of %s: %w", role, err)
	}
	return nil
}
