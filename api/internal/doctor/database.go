package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"email-gateway/schema/pgurl"
	"email-gateway/shared/store"
)

const (
	// From skewSeen on, timelines are hard to read; from skewBad on, values that programs
	// compute from database times are wrong: a lease lasts 60 s.
	skewSeen, skewBad = time.Second, 10 * time.Second
	// crowded is the share of used connections (percent) above which restarting programs may
	// find none free.
	crowded = 80
)

// database checks Postgres itself and reports whether it answers.
func (x *examination) database(ctx context.Context) bool {
	const check = "database"
	if x.Store == nil {
		x.add(check, Failure, databaseAdvice(x.StoreErr), "The database is not usable: %v", x.StoreErr)
		return false
	}
	asked := time.Now()
	server, err := x.Store.Server(ctx)
	if x.couldNot(check, err) {
		return false
	}
	took := time.Since(asked)
	version := fmt.Sprintf("Postgres %d.%d", server.Version/10000, server.Version%100)
	before := len(x.report.Findings)
	if server.Version < store.OldestServer {
		x.add(check, Failure, "Upgrade it to 15 or newer.", "%s is too old.", version)
		return false
	}
	if server.Encoding != "UTF8" {
		x.add(check, Failure, "Dump it, create another database with ENCODING 'UTF8' TEMPLATE template0, and restore the dump there.",
			"The encoding of the database is %s, not UTF8: texts are rejected, or compared and truncated as bytes.", server.Encoding)
	}
	if !server.LowersASCII {
		x.add(check, Failure, "Dump it, create another database with LOCALE 'C.UTF-8' TEMPLATE template0, and restore the dump there.",
			"The locale of the database lowers ASCII letters to others, as Turkish does: suppressed and erased addresses with an I are not found.")
	}
	if server.OtherCollation {
		x.add(check, Failure, "Stop the programs, run REINDEX DATABASE and then ALTER DATABASE … REFRESH COLLATION VERSION, as the owner. With standbys on machines with another operating system, install the same glibc or ICU first.",
			"The collation of the database has another version than when its indexes were built, with another glibc or ICU: rows may not be found, and unique keys not be unique.")
	}
	switch {
	case server.Standby:
		x.add(check, Failure, "Point DATABASE_URL to the primary.", "%s is a standby: it accepts no writes.", version)
	case server.ReadOnly:
		x.add(check, Failure, readOnlyAdvice, "%s accepts no writes: default_transaction_read_only is on. No email is accepted or sent, and processes cannot report.", version)
	}
	if !server.Durable {
		x.add(check, Failure, "Set fsync, full_page_writes and synchronous_commit to on: a 202 promises that the email is not lost.",
			"Commits of %s may be lost in a power failure.", version)
	}
	if server.Connections*100 > server.MaxConnections*crowded {
		x.add(check, Warning, "Raise max_connections, or use PgBouncer.", "%d of %d connections are in use.", server.Connections, server.MaxConnections)
	}
	if !server.EndsIdle {
		x.add(check, Warning, "Run `migrate roles`, and let each program log in as its own role; other login roles need ALTER ROLE … SET idle_in_transaction_session_timeout = '5s'.",
			"Postgres does not terminate idle transactions of %s: a frozen or disconnected program keeps its locks.", server.Role)
	}
	if !server.TLS && x.remote() {
		x.add(check, Warning, "Add sslmode=verify-full to DATABASE_URL.", "The connection to the database is not encrypted.")
	}
	if len(x.report.Findings) == before {
		x.add(check, OK, "", "%s answers within %s with durable commits; %d of %d connections are in use.",
			version, took.Round(100*time.Microsecond), server.Connections, server.MaxConnections)
	}
	x.server = server
	x.replication(ctx)
	x.roleCommits()
	x.pooler(ctx, server)
	x.roles(ctx, server)
	x.clock(server, asked, took)
	return true
}

const readOnlyAdvice = "Managed servers set default_transaction_read_only when the disk is nearly full: give it space. Otherwise it is a setting of the server, the database or the role (ALTER … RESET default_transaction_read_only). The programs continue automatically."

// databaseAdvice returns advice for a database that cannot be used.
func databaseAdvice(err error) string {
	switch {
	case err != nil && strings.Contains(err.Error(), "unsupported startup parameter"): // PgBouncer
		return "Set DATABASE_POOLED=true for api, dispatcher, worker and gatewayctl: a pooler does not accept connection settings from programs."
	case errors.Is(err, store.ErrUnavailable):
		return "Check that Postgres is running, that DATABASE_URL points to it, and, with target_session_attrs=read-write, that one of its servers accepts writes."
	case err != nil && strings.Contains(err.Error(), "password authentication failed"):
		return "Correct the user or the password in DATABASE_URL."
	}
	return "Correct DATABASE_URL: postgres://user:password@host:port/database."
}

// remote reports whether the database is on another machine, according to its URL.
func (x *examination) remote() bool {
	u, err := pgurl.Parse(x.value("DATABASE_URL"))
	if err != nil {
		return false
	}
	return slices.ContainsFunc(pgurl.Hosts(u), func(host string) bool {
		ip := net.ParseIP(host)
		return host != "" && !strings.HasPrefix(host, "/") && host != "localhost" && (ip == nil || !ip.IsLoopback())
	})
}

func (x *examination) roles(ctx context.Context, server store.Server) {
	const check, advice = "roles", "Run `migrate roles` as the owner of the tables after every `migrate up`."
	switch {
	case len(server.Roles) < 4, !server.Granted:
		x.add(check, Warning, advice+" Then set a password for each role, and let each program connect with its own role.",
			"The programs have no separate database roles: each has all permissions.")
	case server.Grants != x.Grants && !x.newerSchema(ctx):
		x.add(check, Failure, advice, "The grants are not those of this release: `migrate roles` has not run since the upgrade. Programs may lack permissions.")
	case server.Superuser:
		x.add(check, Warning, "Let DATABASE_URL log in as gateway_operator: a superuser can change the audit log.",
			"gatewayctl has logged in as %s, a superuser.", server.Role)
	default:
		x.add(check, OK, "", "Each program has its own role; gatewayctl has logged in as %s.", server.Role)
	}
}

// newerSchema reports whether a newer release has migrated the database, whose grants differ; migrations reports that.
func (x *examination) newerSchema(ctx context.Context) bool {
	version, err := x.Store.SchemaVersion(ctx)
	return err == nil && version > x.Newest
}

// clock compares this machine's clock with that of Postgres, which decides what is due.
func (x *examination) clock(server store.Server, asked time.Time, took time.Duration) {
	const check = "clock"
	skew := server.Now.Sub(asked.Add(took / 2)) // ± half the duration of the query
	off := max(skew.Abs()-took/2, 0)
	direction := "behind"
	if skew < 0 {
		direction = "ahead of"
	}
	const advice = "Synchronize both machines with the same NTP servers (timedatectl shows the state)."
	switch {
	case off >= skewBad:
		x.add(check, Failure, advice, "This machine is %s %s Postgres.", off.Round(100*time.Millisecond), direction)
	case off >= skewSeen:
		x.add(check, Warning, advice, "This machine is %s %s Postgres.", off.Round(100*time.Millisecond), direction)
	default:
		x.add(check, OK, "", "This machine and Postgres agree to within %s.", (off + took).Round(time.Millisecond))
	}
}

func (x *examination) migrations(ctx context.Context) {
	const check = "migrations"
	version, err := x.Store.SchemaVersion(ctx)
	switch {
	case errors.Is(err, store.ErrNotMigrated):
		x.add(check, Failure, "Run `migrate up`, then `migrate roles`, with the owner's DATABASE_URL.", "The database has no tables yet.")
		return
	case x.couldNot(check, err):
		return
	case version < x.Newest:
		x.add(check, Failure, "Run `migrate up`, then `migrate roles`, with the owner's DATABASE_URL.",
			"The database is at migration %d, this release needs %d.", version, x.Newest)
	case version > x.Newest:
		x.add(check, Warning, "Use the gatewayctl of that release, and upgrade the other programs to it.",
			"The database is at migration %d, newer than this release, which knows %d.", version, x.Newest)
	default:
		x.add(check, OK, "", "The database is at migration %d, the newest.", version)
	}
	server, err := x.Store.Server(ctx)
	if err == nil && len(server.Broken) > 0 {
		x.add(check, Failure, "If no migration is running: DROP INDEX CONCURRENTLY each, and run its CREATE INDEX from schema/migrations again.",
			"An interrupted migration left invalid indexes: %s.", strings.Join(server.Broken, ", "))
	}
}

// partitions looks for those of this and the next month; dispatchers create them months ahead.
func (x *examination) partitions(ctx context.Context) {
	const check = "partitions"
	if version, err := x.Store.SchemaVersion(ctx); err != nil || version < x.Newest {
		return // reported by migrations
	}
	missing, err := x.Partitions.MissingLogPartitions(ctx)
	if x.couldNot(check, err) {
		return
	}
	found := false
	for _, m := range missing {
		if m.Months == 0 {
			continue
		}
		found = true
		x.add(check, Warning, "Check that a dispatcher is running, and see its log: another session has held a lock on the table for hours, or the role lacks make_log_partition (`migrate roles`).",
			"%s lacks a partition for this month or the next: retention cannot drop rows that are written then.", m.Log)
	}
	if !found {
		x.add(check, OK, "", "The logs have partitions for this month and the next.")
	}
}
