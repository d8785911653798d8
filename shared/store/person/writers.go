package person

import (
	"context"
	"fmt"

	"email-gateway/shared/store/internal/pg"
)

// writersSQL reads the locks of the server, not its tables. Every transaction that writes to a
// table holds a ROW EXCLUSIVE lock on it until the transaction ends. A prepared transaction has no
// process.
const writersSQL = `
SELECT DISTINCT virtualtransaction AS name, pid IS NULL AS prepared FROM pg_locks
WHERE locktype = 'relation' AND mode = 'RowExclusiveLock' AND granted AND pid IS DISTINCT FROM pg_backend_pid()
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND relation IN ('email_outbox'::regclass, 'recipients'::regclass, 'mailings'::regclass, 'mailing_entries'::regclass, 'suppressions'::regclass)`

// Writer is a transaction that writes to tables with personal data.
type Writer struct {
	Name     string `db:"name"`     // it changes when the transaction is prepared
	Prepared bool   `db:"prepared"` // by PREPARE TRANSACTION
}

// Writers returns the transactions that currently write to tables with personal data. Their changes
// are not visible before they are committed.
func (s *Store) Writers(ctx context.Context) ([]Writer, error) {
	var writers []Writer
	if err := s.db.SelectContext(ctx, &writers, writersSQL); err != nil {
		return nil, fmt.Errorf("list writers: %w", pg.Translate(err))
	}
	return writers, nil
}
