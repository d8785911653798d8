// Package store holds every SQL statement of the gateway's programs: one file per
// table (the outbox, being the heart, has one per step), each statement beside the
// one method that runs it, with the index it uses and the rows it locks.
//
// It is used by the api, by dispatcher and worker, and by gatewayctl. None of them
// sees SQL; each declares the few methods it calls as an interface of its own.
package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"
)

// Store runs the statements. It is safe for concurrent use.
type Store struct {
	db *sqlx.DB
	// The statements that every email goes through.
	insertEmail, scheduleEmail, loadEmail, advanceEmail *prepared

	quotas   *quotaCache
	copyTime time.Duration // how long one COPY goes on
	hands    int           // that load and advance emails
	waits    *waits        // for the locks of other transactions
}

// Options bound what one process asks of Postgres.
type Options struct {
	// MaxConns is how many connections may be open at once (0 means 16).
	MaxConns int
	// StatementTimeout ends a statement that runs longer (0 means 30 s).
	StatementTimeout time.Duration
	// Hands is how many callers at once load and advance emails, one by one. The more there
	// are, the longer they wait for each other (0 means that they do not).
	Hands int
}

// Open connects to the database named by a postgres:// URL and checks that it
// answers.
func Open(ctx context.Context, databaseURL string, o Options) (*Store, error) {
	dsn, err := dataSource(databaseURL, o)
	if err != nil {
		return nil, err
	}
	connector, err := pq.NewConnector(dsn)
	if err != nil {
		return nil, fmt.Errorf("read DATABASE_URL: %w", err)
	}
	connector.Dialer(dialer{silence: o.statementTimeout() + answerTime})
	db := sqlx.NewDb(sql.OpenDB(connector), "postgres")
	conns := o.MaxConns
	if conns == 0 {
		conns = 16
	}
	// As many idle as open: a burst must not pay for new connections each time.
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	db.SetConnMaxIdleTime(5 * time.Minute)
	s := &Store{
		db:            db,
		insertEmail:   &prepared{db: db, text: insertEmailsSQL},
		scheduleEmail: &prepared{db: db, text: insertScheduledSQL},
		loadEmail:     &prepared{db: db, text: loadSQL},
		advanceEmail:  &prepared{db: db, text: advanceSQL},
		// A COPY is one statement: it must be over well before the connection gives up on it.
		copyTime: o.statementTimeout() / 6,
		hands:    o.Hands,
		waits:    newWaits(),
	}
	s.quotas = newQuotaCache(func(ctx context.Context, company uuid.UUID) (map[Quota]QuotaUse, error) {
		return quotaUse(ctx, db, company, false)
	})
	if err := s.Ping(ctx); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return s, nil
}

func (o Options) statementTimeout() time.Duration {
	return cmp.Or(o.StatementTimeout, 30*time.Second)
}

// dataSource adds what the programs rely on to the URL. binary_parameters halves
// the round trips of a statement with parameters, works behind PgBouncer, and lets
// columns travel as they are.
func dataSource(databaseURL string, o Options) (string, error) {
	u, err := url.Parse(databaseURL)
	if err != nil || !strings.HasPrefix(u.Scheme, "postgres") {
		// The parser's and the driver's own errors would quote the URL, and with it the password.
		return "", errors.New("DATABASE_URL must be postgres://user:password@host:port/database, with / # ? and % in the password percent-encoded")
	}
	q := u.Query()
	setDefault := func(key, value string) {
		if !q.Has(key) {
			q.Set(key, value)
		}
	}
	q.Set("binary_parameters", "yes")
	setDefault("connect_timeout", "5")
	setDefault("statement_timeout", fmt.Sprint(o.statementTimeout().Milliseconds()))
	setDefault("idle_in_transaction_session_timeout", idleTime)
	// Every hot statement follows an index, row by row, and keeps to that: see prepared.
	for _, detour := range []string{"enable_seqscan", "enable_hashjoin", "enable_mergejoin", "enable_material"} {
		setDefault(detour, "off")
	}
	setDefault("jit", "off") // no statement here is worth compiling
	u.RawQuery = q.Encode()
	return u.String(), nil
}

// Ping asks Postgres for a sign of life.
func (s *Store) Ping(ctx context.Context) error {
	if err := s.db.PingContext(ctx); err != nil {
		return fmt.Errorf("ping database: %w", translate(err))
	}
	return nil
}

// Close ends all connections. What is still running on them is rolled back.
func (s *Store) Close() error {
	if err := s.db.Close(); err != nil {
		return fmt.Errorf("close database: %w", err)
	}
	return nil
}
