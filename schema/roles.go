package schema

import (
	"context"
	"database/sql"
	_ "embed" // for roles.sql
	"fmt"
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
