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

// Prepared is a statement that each connection parses and plans once instead of each time: that is half the work of a
// small group.
//
// Postgres may make the plan while the tables are nearly empty, when a scan of a whole table looks cheapest, and use it
// long after they have grown. Three things keep the plan right: sessionSettings disable sequential scans; a LIMIT with
// a parameter makes the planner expect few rows and start with them; and conditions on email_outbox other than its id
// are written as a CASE that needs the list of ids too. Without that CASE the planner would estimate that the condition
// leaves one row of the table, and might start with the table.
type Prepared struct {
	db   *sqlx.DB
	text string

	mu   sync.Mutex
	stmt *sqlx.Stmt
	off  atomic.Bool
}

// Prepare makes a statement that is prepared at its first use. Behind a pooler it is never prepared: on the server
// connection that runs it, its name could belong to another process's statement.
func (db *DB) Prepare(text string) *Prepared {
	p := &Prepared{db: db.DB, text: text}
	p.off.Store(db.options.Pooled)
	return p
}

// Select runs the statement and scans its rows into dest. If the server connection does not know the prepared
// statement, Select sends the text, this time and from then on.
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

// Ready prepares statements for SelectIn. It is called before the transaction begins, which then needs no second
// connection.
func Ready(ctx context.Context, statements ...*Prepared) error {
	for _, p := range statements {
		if p.off.Load() {
			continue
		}
		switch _, err := p.prepare(ctx); { //nolint:sqlclosecheck // it lives as long as the database handle, which closes it
		case isUnprepared(err):
			p.off.Store(true)
		case err != nil:
			return Translate(err)
		}
	}
	return nil
}

// SelectIn is Select in a transaction, for statements that are Ready. The transaction cannot run the statement again: if
// the connection does not know it, the error makes Repeat repeat the transaction, with the text.
func (p *Prepared) SelectIn(ctx context.Context, tx *sqlx.Tx, dest any, args ...any) error {
	if p.off.Load() {
		return tx.SelectContext(ctx, dest, p.text, args...)
	}
	stmt := tx.StmtxContext(ctx, p.stmt)
	defer func() { _ = stmt.Close() }()
	err := stmt.SelectContext(ctx, dest, args...)
	if isUnprepared(err) {
		p.off.Store(true)
		err = errors.Join(errUnprepared, err)
	}
	return err
}

// errUnprepared: the connection does not know a prepared statement. Nothing was written.
var errUnprepared = errors.New("the connection does not know a prepared statement")

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

// isUnprepared reports whether the connection has lost the statement, has another one of this name, or a migration has
// changed the columns that it returns. The statement was not run.
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

// isMismatch reports whether Postgres refused to bind the parameters, because its statement of this name is a different
// one with another number of parameters. Nothing was run. PgBouncer uses the same SQLSTATE for each of its own errors,
// such as a broken server connection, but these name no function of Postgres that raised them.
func isMismatch(refused *pq.Error) bool {
	return refused.Code == pqerror.ProtocolViolation && refused.Routine != ""
}
