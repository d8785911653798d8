package pg

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"

	"email-gateway/schema/pgurl"
	"email-gateway/shared/uuidv7"
)

// DB is a pool of connections. It is safe for concurrent use.
type DB struct {
	*sqlx.DB
	url       string
	connector *connector
	waits     *waits // for the locks of other transactions
	companies *companyLocks
	options   Options
}

// Options limits one process's use of Postgres.
type Options struct {
	// MaxConns is how many connections may be open at once (0 means 16).
	MaxConns int
	// StatementTimeout ends a statement that runs longer (0 means 30 s).
	StatementTimeout time.Duration
	// Workers is how many goroutines load and advance emails concurrently. The more there are, the longer a group waits
	// for further items. 0 means that groups do not wait.
	Workers int
	// Pooled means that a pooler gives each transaction another server connection. Statements are then not prepared,
	// and the settings of a program's connections must be settings of its role (see schema/roles.sql).
	Pooled bool
	// AllowUnreachable makes Open succeed while Postgres cannot be reached: statements fail with ErrUnavailable until
	// it can. If Postgres answers with a refusal (of a password, a certificate or a missing database), Open still
	// fails. After Open such a refusal is ErrUnavailable too.
	AllowUnreachable bool
}

// Open connects to the database named by a postgres:// URL and checks that it answers; see Options.AllowUnreachable.
func Open(ctx context.Context, databaseURL string, o Options) (*DB, error) {
	dsn, err := DataSource(databaseURL, o)
	if err != nil {
		return nil, err
	}
	inner, err := newHosts(dsn, dialer{silence: o.statementTimeout() + answerTime})
	if err != nil {
		return nil, fmt.Errorf("read DATABASE_URL: %w", err)
	}
	connector := &connector{Connector: inner, limit: o.statementTimeout() + cancelTime}
	db := &DB{
		DB: sqlx.NewDb(sql.OpenDB(connector), "postgres"), url: databaseURL, connector: connector,
		waits: newWaits(), companies: newCompanyLocks(), options: o,
	}
	connector.crowd.pool, connector.crowd.max = db.DB.DB, o.maxConns()
	// The pool keeps as many idle connections as may be open, so that a burst does not wait for new ones.
	connector.crowd.limit(o.maxConns())
	db.SetConnMaxIdleTime(5 * time.Minute)
	if err := db.opened(ctx); err != nil && (!o.AllowUnreachable || !errors.Is(err, ErrUnavailable)) {
		return nil, errors.Join(err, db.DB.Close())
	}
	return db, nil
}

// opened is Ping, except that a lasting refusal of the connection is not ErrUnavailable, and reads the clock.
func (db *DB) opened(ctx context.Context) error {
	err := db.PingContext(ctx)
	if !isRefusedConnection(err) {
		err = Translate(err)
	}
	if err != nil {
		return Wrap("ping database", err)
	}
	return db.ReadClock(ctx, uuidv7.Process())
}

// Select reads rows into a slice. Select, Get, Exec and InTx return the errors of this package.
func (db *DB) Select(ctx context.Context, into any, statement string, args ...any) error {
	return Translate(db.SelectContext(ctx, into, statement, args...))
}

// Get reads one row into a struct or a value, or returns ErrNotFound.
func (db *DB) Get(ctx context.Context, into any, statement string, args ...any) error {
	return Translate(db.GetContext(ctx, into, statement, args...))
}

// Workers is Options.Workers.
func (db *DB) Workers() int { return db.options.Workers }

// CopyTime is how long one COPY may last. A COPY is one statement, so it must end well before the connection times out.
func (db *DB) CopyTime() time.Duration { return db.options.statementTimeout() / 6 }

// MaxConns is how many connections the pool may have.
func (db *DB) MaxConns() int { return db.options.maxConns() }

func (o Options) maxConns() int { return cmp.Or(o.MaxConns, 16) }

func (o Options) statementTimeout() time.Duration {
	return cmp.Or(o.StatementTimeout, 30*time.Second)
}

// DataSource adds required settings to the URL. binary_parameters sends a statement with its parameters in one round
// trip, which works behind PgBouncer and avoids the conversion of columns. A pooler accepts no settings per connection,
// so with Pooled the roles have them.
func DataSource(databaseURL string, o Options) (string, error) {
	u, err := pgurl.Parse(databaseURL)
	if err != nil {
		return "", err
	}
	q := u.Query()
	isSet := func(key string) bool { // for Postgres, the case of a setting's name makes no difference
		return slices.ContainsFunc(slices.Collect(maps.Keys(q)), func(other string) bool { return strings.EqualFold(other, key) })
	}
	setDefault := func(key, value string) {
		if !isSet(key) {
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
		for _, s := range requiredSettings {
			maps.DeleteFunc(q, func(key string, _ []string) bool { return strings.EqualFold(key, s.name) })
			q.Set(s.name, s.value)
		}
	}
	u.RawQuery = q.Encode()
	return u.String(), nil
}

type setting struct{ name, value string }

// sessionSettings are the settings of every connection whose URL has no other value. schema/roles.sql gives the roles the
// same settings, and also idle_in_transaction_session_timeout, which must hold behind a pooler and for other programs of a
// role too.
var sessionSettings = []setting{
	// Prepared statements and the searches of emails use an index whatever the statistics are: see README.md ("Planner
	// settings") for what each reads without this setting.
	{"enable_seqscan", "off"},
	{"jit", "off"},                    // no statement here is worth compiling
	{"client_min_messages", "notice"}, // a warning reports that no standby has confirmed a commit
}

// requiredSettings are the settings without which statements have other effects. A URL, a role or a database cannot have
// other values. schema/roles.sql sets them for the roles, and schema/cmd/migrate for its own connections.
var requiredSettings = []setting{
	// Transactions read what others have committed while they waited for a lock. With one snapshot for the whole
	// transaction, a write to a row that another one has changed fails, and a quota is compared with an old total.
	{"default_transaction_isolation", "read committed"},
	// Postgres's default begins with a schema named after the role, in which other owners could create tables.
	{"search_path", "public"},
	{"TimeZone", "UTC"}, // a day is 24 hours, also where a zone changes to summer time
}

// Ping checks the connection to Postgres.
func (db *DB) Ping(ctx context.Context) error {
	return Wrap("ping database", Translate(db.PingContext(ctx)))
}

// Close closes all connections. Postgres rolls back what is still running on them. Close returns no error: commits are
// confirmed already, and a connection that the server ended first is closed all the same.
func (db *DB) Close() { _ = db.DB.Close() }
