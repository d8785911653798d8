package schema

import (
	"context"
	"crypto/sha256"
	"database/sql"
	_ "embed" // for roles.sql
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/lib/pq"
)

//go:embed roles.sql
var rolesSQL string

// Roles creates a database role for each program, with only the grants that its statements need. It
// may run repeatedly, and must run after Up: new tables have no grants. The caller must be the
// tables' owner, and the first time a role that may create roles. Any number of callers may run it
// concurrently, also with Up: Postgres refuses concurrent changes of one table's grants. It changes
// nothing and returns ErrNewer if a newer release has migrated the database.
func Roles(ctx context.Context, db *sql.DB) (err error) {
	var lock migrationLock
	if err := lock.acquire(ctx, db); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Unlock(ctx, db)) }()
	if err := refuseNewer(ctx, db); err != nil {
		return fmt.Errorf("grant roles: %w", err)
	}
	if _, err := db.ExecContext(ctx, rolesSQL+"\nCOMMENT ON TABLE goose_db_version IS "+pq.QuoteLiteral(RolesFingerprint())); err != nil {
		return fmt.Errorf("grant roles: %w", err)
	}
	return nil
}

// RolesFingerprint returns a hash of roles.sql. Roles stores it as the comment of the table of migrations, where
// gatewayctl doctor reads it: the owner of the tables may write it, and everybody may read it.
func RolesFingerprint() string {
	sum := sha256.Sum256([]byte(rolesSQL))
	return "roles.sql " + hex.EncodeToString(sum[:])[:12]
}

// ErrNewer: the database has migrations of a newer release, whose programs need grants that this release would revoke.
var ErrNewer = errors.New("the database is newer than this release")

// newestSQL reads a table with a row per migration.
const newestSQL = `SELECT coalesce(max(version_id), 0) FROM goose_db_version WHERE is_applied`

func refuseNewer(ctx context.Context, db *sql.DB) error {
	newest, err := Newest()
	if err != nil {
		return err
	}
	var version int64
	if err := db.QueryRowContext(ctx, newestSQL).Scan(&version); err != nil {
		return fmt.Errorf("look for the newest migration: %w", err)
	}
	if version > newest {
		return fmt.Errorf("%w: it is at migration %d, and this release knows %d", ErrNewer, version, newest)
	}
	return nil
}

// LoginRoles returns the roles with which programs and people connect.
func LoginRoles() []string {
	return []string{"gateway_api", "gateway_dispatcher", "gateway_worker", "gateway_operator", "gateway_privacy"}
}
