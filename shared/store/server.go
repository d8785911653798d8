package store

import (
	"context"
	"fmt"
	"time"

	"github.com/lib/pq"

	"email-gateway/shared/store/internal/pg"
)

// Server describes the Postgres server, for gatewayctl doctor.
type Server struct {
	Version   int       `db:"version"` // 170002 is 17.2
	Now       time.Time `db:"now"`
	Role      string    `db:"role"` // role of this connection
	Superuser bool      `db:"superuser"`
	Encoding  string    `db:"encoding"` // of the database; it must be UTF8
	// LowersASCII means that lower() of ASCII letters are ASCII letters: not so in a Turkish locale.
	LowersASCII bool `db:"lowers_ascii"`
	TLS         bool `db:"tls"` // this connection uses TLS
	// OtherCollation means that the collation of the database has another version than when its indexes were built.
	OtherCollation bool `db:"other_collation"`
	Standby        bool `db:"standby"`
	// ReadOnly means that transactions of this connection may not write: on a standby, and by default_transaction_read_only.
	ReadOnly bool `db:"read_only"`
	// Durable means that committed data survives a power failure, for commits of this connection.
	Durable bool `db:"durable"`
	// SyncCommit is synchronous_commit of this connection.
	SyncCommit string `db:"sync_commit"`
	// RoleCommits are the roles of programs that set synchronous_commit, each as "role: value".
	RoleCommits    pq.StringArray `db:"role_commits"`
	Connections    int            `db:"connections"`
	MaxConnections int            `db:"max_connections"`
	// ReservedConnections are those of MaxConnections that programs do not get.
	ReservedConnections int            `db:"reserved_connections"`
	Roles               pq.StringArray `db:"roles"` // existing roles of the programs
	// Granted means that one of the roles has rights on a table. Roles belong to the whole cluster, so an existing role
	// may have been created for another of its databases.
	Granted bool `db:"granted"`
	// Grants names the text of schema/roles.sql that ran last, as schema.RolesFingerprint does.
	Grants string `db:"grants"`
	// SyncStandbys are the standbys that a commit waits for, in the form of Postgres's setting; "" = none.
	SyncStandbys string `db:"sync_standbys"`
	// Unset are the settings that a program's role lacks, or has with a value under which statements have other effects,
	// each as "role: setting". Behind a pooler, only roles can have them.
	Unset pq.StringArray `db:"unset"`
	// EndsIdle means that Postgres ends idle transactions of this connection: idle_in_transaction_session_timeout is
	// not 0.
	EndsIdle bool `db:"ends_idle"`
	// Broken are indexes that an interrupted migration has left behind.
	Broken pq.StringArray `db:"broken"`
}

// OldestServer is the oldest server_version_num of Postgres that the gateway supports. Server reads nothing but the
// version of an older one.
const OldestServer = 15_00_00

// serverVersionSQL reads no table and locks nothing.
const serverVersionSQL = `SELECT current_setting('server_version_num')::int`

// serverSQL reads Postgres's system catalogs and locks nothing.
const serverSQL = `
SELECT current_setting('server_version_num')::int AS version, clock_timestamp() AS now, session_user::text AS role,
       (SELECT rolsuper FROM pg_roles WHERE rolname = session_user) AS superuser,
       current_setting('server_encoding') AS encoding, lower('ABCDEFGHIJKLMNOPQRSTUVWXYZ') = 'abcdefghijklmnopqrstuvwxyz' AS lowers_ascii,
       (SELECT coalesce(datcollversion <> pg_database_collation_actual_version(oid), false) FROM pg_database WHERE datname = current_database()) AS other_collation,
       coalesce((SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()), false) AS tls,
       pg_is_in_recovery() AS standby, current_setting('transaction_read_only') = 'on' AS read_only,
       current_setting('fsync') = 'on' AND current_setting('synchronous_commit') <> 'off' AND current_setting('full_page_writes') = 'on' AS durable,
       current_setting('synchronous_commit') AS sync_commit,
       ARRAY(SELECT DISTINCT ON (r.rolname) r.rolname || ': ' || split_part(c.text, '=', 2)
             FROM pg_roles r JOIN pg_db_role_setting d ON d.setrole = r.oid AND (d.setdatabase = 0 OR d.setdatabase = (SELECT oid FROM pg_database WHERE datname = current_database())), unnest(d.setconfig) AS c(text)
             WHERE r.rolname IN ('gateway_api', 'gateway_dispatcher', 'gateway_worker', 'gateway_operator', 'gateway_privacy') AND starts_with(c.text, 'synchronous_commit=')
             ORDER BY r.rolname, d.setdatabase DESC) AS role_commits,
       (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend') AS connections,
       current_setting('max_connections')::int AS max_connections,
       current_setting('superuser_reserved_connections')::int + coalesce(current_setting('reserved_connections', true)::int, 0) AS reserved_connections,
       ARRAY(SELECT rolname::text FROM pg_roles WHERE rolname IN ('gateway_api', 'gateway_dispatcher', 'gateway_worker', 'gateway_operator') ORDER BY 1) AS roles,
       coalesce(obj_description(to_regclass('goose_db_version'), 'pg_class'), '') AS grants,
       EXISTS (SELECT FROM pg_class c JOIN pg_roles r ON r.rolname IN ('gateway_api', 'gateway_dispatcher', 'gateway_worker', 'gateway_operator')
               WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND has_any_column_privilege(r.oid, c.oid, 'SELECT, INSERT, UPDATE')) AS granted,
       current_setting('synchronous_standby_names') AS sync_standbys,
       ARRAY(SELECT r.rolname || ': ' || string_agg(split_part(s.begins, '=', 1), ', ' ORDER BY s.begins COLLATE "C")
             FROM pg_roles r, unnest(ARRAY['statement_timeout=', 'idle_in_transaction_session_timeout=', 'enable_seqscan=', 'jit=', 'client_min_messages=',
                                           'default_transaction_isolation=read committed', 'search_path=public', 'TimeZone=UTC']) AS s(begins)
             WHERE r.rolname IN ('gateway_api', 'gateway_dispatcher', 'gateway_worker', 'gateway_operator', 'gateway_privacy', session_user)
               AND (NOT EXISTS (SELECT FROM unnest(r.rolconfig) AS c(text) WHERE starts_with(c.text, s.begins))
                    OR EXISTS (SELECT FROM pg_db_role_setting d JOIN pg_database b ON b.oid = d.setdatabase, unnest(d.setconfig) AS c(text)
                               WHERE d.setrole = r.oid AND b.datname = current_database()
                                 AND starts_with(c.text, split_part(s.begins, '=', 1) || '=') AND NOT starts_with(c.text, s.begins)))
             GROUP BY r.rolname ORDER BY r.rolname) AS unset,
       current_setting('idle_in_transaction_session_timeout') <> '0' AS ends_idle,
       ARRAY(SELECT c.relname::text FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
             WHERE NOT i.indisvalid AND c.relnamespace = 'public'::regnamespace ORDER BY 1) AS broken`

// Server reads the state of the Postgres server.
func (s *Store) Server(ctx context.Context) (Server, error) {
	var found Server
	// An older Postgres than the gateway needs does not know all that serverSQL reads.
	if err := s.db.GetContext(ctx, &found.Version, serverVersionSQL); err != nil || found.Version < OldestServer {
		return found, pg.Wrap("read the state of the server", pg.Translate(err))
	}
	if err := s.db.GetContext(ctx, &found, serverSQL); err != nil {
		return Server{}, fmt.Errorf("read the state of the server: %w", pg.Translate(err))
	}
	return found, nil
}

// workersNeedKeysSQL reads at most one row of each table.
const workersNeedKeysSQL = `SELECT EXISTS (SELECT FROM webhook_endpoints) OR EXISTS (SELECT FROM stored_files)`

// WorkersNeedKeys reports whether anything is stored that workers decrypt: the secrets of webhook endpoints, or files
// for attachments.
func (s *Store) WorkersNeedKeys(ctx context.Context) (needed bool, err error) {
	err = s.db.Get(ctx, &needed, workersNeedKeysSQL)
	return needed, pg.Wrap("look for encrypted values", err)
}

// schemaVersionSQL reads the table of migrations, which has one row per migration.
const schemaVersionSQL = `SELECT coalesce(max(version_id), 0) FROM goose_db_version WHERE is_applied`

// SchemaVersion returns the number of the newest applied migration, or ErrNotMigrated if none was applied.
func (s *Store) SchemaVersion(ctx context.Context) (int64, error) {
	var version int64
	if err := s.db.GetContext(ctx, &version, schemaVersionSQL); err != nil {
		return 0, fmt.Errorf("read the newest migration: %w", pg.Translate(err))
	}
	return version, nil
}
