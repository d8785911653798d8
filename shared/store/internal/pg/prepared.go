package pg

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"
)

// Prepared is a statement that each connection parses and plans once instead of
// each time, which is half the work of a small group.
//
// The plan may be made while the tables are nearly empty, where reading one whole
// looks cheapest, and is in use long after they have grown. Three things keep it
// right: sessionSettings switch off scans of whole tables; a LIMIT by
// a parameter makes the planner expect so few rows that it begins with them; and what
// is asked of email_outbox besides its id is put so that it needs the list of ids too (a
// CASE). Without that the planner would believe that one row of the table is left, and
// find it as cheap to begin with the table.
type Prepared struct {
	db   *sqlx.DB
	text string

	mu   sync.Mutex
	stmt *sqlx.Stmt
	off  atomic.Bool
}

// Prepare makes a statement that is prepared when it is first used. Behind a pooler it never is: on the server connection that
// runs it, its name could belong to another process's statement.
func (db *DB) Prepare(text string) *Prepared {
	p := &Prepared{db: db.DB, text: text}
	p.off.Store(db.options.Pooled)
	return p
}

// Select runs the statement and scans its rows into dest. When the server connection does not know it, the
// statement is sent whole, this time and from now on.
func (p *Prepared) Select(ctx context.Context, dest any, args ...any) error {
	if !p.off.Load() {
		stmt, err := p.prepare(ctx) //nolint:sqlclosecheck // it lives as long as the database handle, which closes it
		if err == nil {
			err = stmt.SelectContext(ctx, dest, args...)
		}
		if !isUnprepared(err) {
			return err
		}
		p.off.Store(true)
	}
	return p.db.SelectContext(ctx, dest, p.text, args...)
}

func (p *Prepared) prepare(ctx context.Context) (*sqlx.Stmt, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stmt != nil {
		return p.stmt, nil
	}
	stmt, err := p.db.PreparexContext(ctx, p.text)
	p.stmt = stmt
	return stmt, err
}

// isUnprepared: the connection has lost the statement, has another of this name, or
// a migration has changed what it returns. It was not run.
func isUnprepared(err error) bool {
	var refused *pq.Error
	if !errors.As(err, &refused) {
		return false
	}
	switch refused.Code {
	case pqerror.InvalidSQLStatementName, pqerror.DuplicatePstatement, pqerror.FeatureNotSupported:
		return true
	}
	return isMismatch(refused)
}

// isMismatch: Postgres refused to bind the parameters, since its statement of this name is another one, with another number
// of them. Nothing was run. PgBouncer uses the same SQLSTATE for every error of its own, such as a server connection that
// broke; those do not name the function of Postgres that raised them.
func isMismatch(refused *pq.Error) bool {
	return refused.Code == pqerror.ProtocolViolation && refused.Routine != ""
}
