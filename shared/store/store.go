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
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"email-gateway/schema/pgurl"
)

// Store runs the statements. It is safe for concurrent use.
type Store struct {
	db        *sqlx.DB
	connector *connector
	// The statements that every email goes through.
	insertEmail, scheduleEmail, loadEmail, advanceEmail, advancePlain *prepared

	quotas   *quotaCache
	copyTime time.Duration // how long one COPY goes on
	hands    int           // that load and advance emails
	waits    *waits        // for the locks of other transactions
	// expanding has the companies whose mailings have met a locked recipient a moment ago.
	expanding *aside[uuid.UUID]
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
	// Pooled: a pooler gives each transaction another server connection. Then nothing is prepared, and what the
	// connections of a program are set to must stand on its role (see schema/roles.sql).
	Pooled bool
	// AllowUnreachable opens also while Postgres cannot be reached: statements fail with
	// ErrUnavailable until it can. What Postgres answers with a refusal (a password, a
	// certificate, a missing database) is an error of Open all the same.
	AllowUnreachable bool
}

// Open connects to the database named by a postgres:// URL and checks that it
// answers, see Options.AllowUnreachable.
func Open(ctx context.Context, databaseURL string, o Options) (*Store, error) {
	dsn, err := dataSource(databaseURL, o)
	if err != nil {
		return nil, err
	}
	inner, err := newHosts(dsn, dialer{silence: o.statementTimeout() + answerTime})
	if err != nil {
		return nil, fmt.Errorf("read DATABASE_URL: %w", err)
	}
	connector := &connector{Connector: inner, limit: o.statementTimeout() + cancelTime}
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
		connector:     connector,
		insertEmail:   newPrepared(db, insertEmailsSQL, o.Pooled),
		scheduleEmail: newPrepared(db, insertScheduledSQL, o.Pooled),
		loadEmail:     newPrepared(db, loadSQL, o.Pooled),
		advanceEmail:  newPrepared(db, advanceSQL, o.Pooled),
		advancePlain:  newPrepared(db, advancePlainSQL, o.Pooled),
		// A COPY is one statement: it must be over well before the connection gives up on it.
		copyTime: o.statementTimeout() / 6,
		hands:    o.Hands,
		waits:    newWaits(),

		expanding: newAside[uuid.UUID](),
	}
	s.quotas = newQuotaCache(func(ctx context.Context, company uuid.UUID) (map[Quota]QuotaUse, error) {
		return quotaUse(ctx, db, company, false)
	})
	if err := s.Ping(ctx); err != nil && (!o.AllowUnreachable || !errors.Is(err, ErrUnavailable)) {
		return nil, errors.Join(err, db.Close())
	}
	return s, nil
}

func (o Options) statementTimeout() time.Duration {
	return cmp.Or(o.StatementTimeout, 30*time.Second)
}

// dataSource adds what the programs rely on to the URL. binary_parameters sends a statement with its parameters in one
// round trip, so that it works behind PgBouncer, and lets columns travel as they are. A pooler takes no
// settings for one connection, so with Pooled the roles have them.
func dataSource(databaseURL string, o Options) (string, error) {
	u, err := pgurl.Parse(databaseURL)
	if err != nil {
		return "", err
	}
	q := u.Query()
	setDefault := func(key, value string) {
		if !q.Has(key) {
			q.Set(key, value)
		}
	}
	q.Set("binary_parameters", "yes")
	setDefault("connect_timeout", "5")
	if !o.Pooled {
		setDefault("statement_timeout", fmt.Sprint(o.statementTimeout().Milliseconds()))
		for _, s := range sessionSettings {
			setDefault(s.name, s.value)
		}
	}
	u.RawQuery = q.Encode()
	return u.String(), nil
}

// sessionSettings are what every connection is set to. schema/roles.sql gives the same to the roles, and
// idle_in_transaction_session_timeout to them alone: it has to hold behind a pooler too, and for other programs of a role.
var sessionSettings = []struct{ name, value string }{
	// Prepared statements and the searches of emails follow an index, whatever statistics there are: see README.md
	// ("Planner settings") for what each reads without this.
	{"enable_seqscan", "off"},
	{"jit", "off"},                    // no statement here is worth compiling
	{"client_min_messages", "notice"}, // a warning says that no standby has confirmed a commit
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
