package schema

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/lib/pq"
)

// unfinishedVersion is a migration without a transaction, 00003_outbox_indexes.sql. It is the only one that fails on what
// an interrupted run of its own has left: it creates an index in place of another one, and fails if the one exists or the other
// does not. A released file is never changed, so indexReplacements describes it.
const unfinishedVersion = 3

// indexReplacements maps each index that the migration creates to the one that it drops afterwards.
var indexReplacements = map[string]string{
	"email_outbox_lane_claim_new": "email_outbox_lane_claim",
	"email_outbox_open":           "email_outbox_expiry",
}

const (
	// versionsSQL reports whether any migration has run.
	versionsSQL = `SELECT to_regclass('goose_db_version') IS NOT NULL`
	// appliedSQL reads a table with a row per migration.
	appliedSQL = `SELECT EXISTS (SELECT FROM goose_db_version WHERE version_id = $1 AND is_applied)`
	// indexesSQL reports for an index and the one that it replaces whether they exist.
	indexesSQL = `SELECT to_regclass($1) IS NOT NULL, to_regclass($2) IS NOT NULL`
)

// undoUnfinished removes what an interrupted run of the migration has left, so that it can be run again. The caller has the
// migration lock.
func undoUnfinished(ctx context.Context, db *sql.DB) error {
	var begun, applied bool
	if err := db.QueryRowContext(ctx, versionsSQL).Scan(&begun); err != nil || !begun {
		return err
	}
	if err := db.QueryRowContext(ctx, appliedSQL, unfinishedVersion).Scan(&applied); err != nil || applied {
		return err
	}
	for made, replaced := range indexReplacements {
		var exists, replacedExists bool
		if err := db.QueryRowContext(ctx, indexesSQL, made, replaced).Scan(&exists, &replacedExists); err != nil {
			return err
		}
		statement := "DROP INDEX CONCURRENTLY " + pq.QuoteIdentifier(made)
		if !replacedExists { // the migration will drop it by that name
			statement = "ALTER INDEX " + pq.QuoteIdentifier(made) + " RENAME TO " + pq.QuoteIdentifier(replaced)
		}
		if !exists {
			continue
		}
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("index %s of an interrupted migration: %w", made, err)
		}
	}
	return nil
}
