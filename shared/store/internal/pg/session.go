package pg

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"
)

// cancelTime is how much longer than statement_timeout a statement may take before it is cancelled. statement_timeout
// does not end the wait of a commit for a synchronous standby. Without the cancel each such wait would hold a server
// connection forever, and a new connection would be opened each time the dialer gives up.
const cancelTime = 2 * time.Second

// minReplacePause and maxReplacePause limit the time between two replacements of all connections: see replaceAll.
const (
	minReplacePause = time.Second
	maxReplacePause = 10 * time.Second
)

// connector makes connections that report two things that lib/pq does not: that no synchronous standby has confirmed a
// commit that lib/pq reports as successful (see ErrUnreplicated), and that the server refuses writes: it is a
// standby now, or default_transaction_read_only is on.
type connector struct {
	driver.Connector
	crowd        crowd
	limit        time.Duration // of a statement, and of a COMMIT
	unreplicated atomic.Int64  // commits that no standby has confirmed
	// doubted is when a commit was last not confirmed by a standby, in Unix nanoseconds; 0 after a standby has
	// confirmed one.
	doubted atomic.Int64
	// generation is raised when a server refuses a write. Connections of an earlier generation are closed before their
	// next use.
	generation atomic.Int64
	replacing  sync.Mutex    // guards the next two
	replaced   time.Time     // when generation was last raised
	pause      time.Duration // until it may be raised again
}

func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	generation := c.generation.Load()
	c.crowd.dialing.Add(1)
	conn, err := c.Connector.Connect(ctx)
	if err == nil {
		c.crowd.open.Add(1)
	}
	c.crowd.dialing.Add(-1)
	if err != nil {
		return nil, c.crowd.refused(err)
	}
	inner, ok := conn.(pqConn)
	if !ok {
		c.crowd.open.Add(-1)
		return nil, errors.Join(fmt.Errorf("the driver's %T lacks a required interface", conn), conn.Close())
	}
	s := &session{pqConn: inner, connector: c, generation: generation}
	pq.SetNoticeHandler(conn, s.notice)
	return s, nil
}

func (s *session) Close() error {
	s.connector.crowd.open.Add(-1)
	return s.pqConn.Close()
}

// pqConn has the interfaces that lib/pq's connections implement.
type pqConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.NamedValueChecker
	driver.Pinger
	driver.SessionResetter
	driver.Validator
}

// session is one connection.
type session struct {
	pqConn
	connector    *connector
	generation   int64
	unreplicated atomic.Bool // no standby confirmed the latest commit; set by notice, which may run in a COPY's goroutine
}

// notice recognizes the warning by the function that raises it: its text and severity are in the server's language, and
// its SQLSTATE is that of any warning.
func (s *session) notice(n *pq.Error) {
	if n.Routine == "SyncRepWaitForLSN" {
		s.unreplicated.Store(true)
		s.connector.doubted.Store(time.Now().UnixNano())
	}
}

// doubtTime is how long after an unconfirmed commit ExplainTimeout attributes timeouts to it.
const doubtTime = 30 * time.Second

// ExplainTimeout adds ErrUnreplicated to the error of a write that timed out shortly after a commit that no standby has
// confirmed. Commits that wait for a standby occupy the connections of the pool, and a cancelled commit reports its
// warning only after another connection has sent the cancel request to Postgres.
func (db *DB) ExplainTimeout(ctx context.Context, err error) error {
	if err == nil || !errors.Is(ctx.Err(), context.DeadlineExceeded) || errors.Is(err, ErrUnreplicated) ||
		time.Since(time.Unix(0, db.connector.doubted.Load())) > doubtTime {
		return err
	}
	return errors.Join(err, ErrUnreplicated)
}

// checked returns the error of a call that may have committed.
func (s *session) checked(err error) error {
	if s.unreplicated.Swap(false) && (err == nil || errors.Is(err, io.EOF)) {
		s.connector.unreplicated.Add(1)
		return ErrUnreplicated
	}
	return s.failed(err)
}

// failed replaces all connections if a server refuses a write, since it may no longer be the primary. It returns err
// unchanged: nothing was written.
func (s *session) failed(err error) error {
	var refused *pq.Error
	if err != nil && errors.As(err, &refused) && refused.Code == pqerror.ReadOnlySQLTransaction {
		s.connector.replaceAll(s.generation)
	}
	return err
}

// replaceAll lets every connection be replaced before its next use, if the refused one was of the present generation:
// connections of earlier ones are being replaced. The pause between two replacements doubles while new connections are refused
// too: the server may be the only one and read-only for hours, and each replacement costs it as many logins as the pool has
// connections.
func (c *connector) replaceAll(refused int64) {
	c.replacing.Lock()
	defer c.replacing.Unlock()
	if refused != c.generation.Load() {
		return
	}
	switch since := time.Since(c.replaced); {
	case since < c.pause:
		return
	case since > 2*maxReplacePause: // writes succeeded meanwhile
		c.pause = minReplacePause
	default:
		c.pause = min(2*c.pause, maxReplacePause)
	}
	c.replaced = time.Now()
	c.generation.Add(1)
}

// ResetSession is called before a pooled connection is used again.
func (s *session) ResetSession(ctx context.Context) error {
	if s.generation != s.connector.generation.Load() {
		return driver.ErrBadConn
	}
	return s.pqConn.ResetSession(ctx)
}

func (s *session) IsValid() bool {
	return s.generation == s.connector.generation.Load() && s.pqConn.IsValid()
}

func (s *session) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, s.connector.limit)
	defer cancel()
	result, err := s.pqConn.ExecContext(ctx, query, args)
	return result, s.checked(err)
}

func (s *session) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	ctx, cancel := context.WithTimeout(ctx, s.connector.limit)
	found, err := s.pqConn.QueryContext(ctx, query, args)
	return s.result(found, err, cancel)
}

// result takes over cancel: calling it earlier would end the query while its rows are read. Rows of a statement that
// lib/pq has cancelled end with the context's error, so the warning is not needed there.
func (s *session) result(found driver.Rows, err error, cancel context.CancelFunc) (driver.Rows, error) {
	if err != nil {
		cancel()
		return nil, s.checked(err)
	}
	return &sessionRows{Rows: found, session: s, cancel: cancel}, nil
}

func (s *session) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	prepared, err := s.pqConn.PrepareContext(ctx, query)
	if err != nil {
		return nil, s.failed(err)
	}
	if inner, ok := prepared.(pqStmt); ok {
		return &sessionStmt{pqStmt: inner, session: s}, nil
	}
	return prepared, nil // a COPY: see Copy. Its transaction commits.
}

func (s *session) BeginTx(ctx context.Context, options driver.TxOptions) (driver.Tx, error) {
	ctx, cancel := context.WithCancel(ctx)
	tx, err := s.pqConn.BeginTx(ctx, options)
	if err != nil {
		cancel()
		return nil, s.failed(err)
	}
	return &sessionTx{Tx: tx, session: s, cancel: cancel}, nil
}

// sessionTx is a transaction whose context lib/pq watches until the transaction ends.
type sessionTx struct {
	driver.Tx
	session *session
	cancel  context.CancelFunc
}

func (t *sessionTx) Commit() error {
	defer t.cancel()
	late := time.AfterFunc(t.session.connector.limit, t.cancel)
	defer late.Stop()
	return t.session.checked(t.Tx.Commit())
}

func (t *sessionTx) Rollback() error {
	defer t.cancel()
	return t.Tx.Rollback()
}

// pqStmt has the interfaces that lib/pq's prepared statements implement.
type pqStmt interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
}

type sessionStmt struct {
	pqStmt
	session *session
}

func (p *sessionStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, p.session.connector.limit)
	defer cancel()
	result, err := p.pqStmt.ExecContext(ctx, args)
	return result, p.session.checked(err)
}

func (p *sessionStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	ctx, cancel := context.WithTimeout(ctx, p.session.connector.limit)
	found, err := p.pqStmt.QueryContext(ctx, args)
	return p.session.result(found, err, cancel)
}

// sessionRows are the rows of a statement, which commits when the last row has been read.
type sessionRows struct {
	driver.Rows
	session *session
	cancel  context.CancelFunc
}

func (r *sessionRows) Next(row []driver.Value) error { return r.session.checked(r.Rows.Next(row)) }

func (r *sessionRows) Close() error {
	defer r.cancel()
	return r.session.checked(r.Rows.Close())
}
