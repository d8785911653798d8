// Package history fills a gateway's tables with emails as if they had been sent during the last
// weeks: it copies a real one in Postgres. Only the benchmark uses it.
package history

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"
)

const (
	// chunk is the number of emails per statement: enough to make its overhead negligible, and few
	// enough for a duration of seconds.
	chunk = 50_000
	// past is the period over which sent emails are distributed, up to pastEnd ago. Older ones
	// would be purged.
	past    = 20 * 24 * time.Hour
	pastEnd = time.Hour
	// sentWithin is the time of a copy from acceptance to SENT in its rows.
	sentWithin = 40 * time.Millisecond
)

// clone are the parameters of the copies.
type clone struct {
	model  uuid.UUID
	n      int
	salt   string
	oldest time.Time     // time of acceptance of email 0
	step   time.Duration // between two emails
	people int           // number of different recipients
}

// Add adds n sent emails with their logs and events, each a copy of the model with its own ids,
// request id, address, external id and times; the model must be SENT. Their ids are UUIDv7 of the
// last weeks, so they sort before the ids of new emails, and each person gets ten of them. Indexes
// without a constraint are dropped first and built again at the end, so no program may run. The
// tables are neither vacuumed nor analysed.
func Add(ctx context.Context, db *sql.DB, model uuid.UUID, n int) error {
	if err := mustBeSent(ctx, db, model); err != nil || n < 1 {
		return err
	}
	end := time.Now().Add(-pastEnd)
	c := clone{
		model: model, n: n, salt: uuid.NewString(), people: max(n/10, 1),
		oldest: end.Add(-past), step: past / time.Duration(n),
	}
	return c.each(ctx, db, outbox, logs, events)
}

func mustBeSent(ctx context.Context, db *sql.DB, model uuid.UUID) error {
	var status string
	if err := db.QueryRowContext(ctx, `SELECT status FROM email_outbox WHERE id = $1`, model).Scan(&status); err != nil {
		return fmt.Errorf("look up model %s: %w", model, err)
	}
	if status != "SENT" {
		return fmt.Errorf("model %s is %s, not SENT", model, status)
	}
	return nil
}

// each fills all tables concurrently, each on its own connection.
func (c clone) each(ctx context.Context, db *sql.DB, tables ...table) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, t := range tables {
		group.Go(func() error { return c.fill(ctx, db, t) })
	}
	return group.Wait()
}

func (c clone) fill(ctx context.Context, db *sql.DB, t table) (err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("fill %s: %w", t.name, err)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	for _, setting := range settings {
		if _, err := conn.ExecContext(ctx, setting); err != nil {
			return fmt.Errorf("fill %s: %s: %w", t.name, setting, err)
		}
	}
	if err := t.makeMonths(ctx, conn, c.oldest); err != nil {
		return err
	}
	rebuild, err := t.dropIndexes(ctx, conn)
	if err != nil {
		return err
	}
	statement, err := t.statement(ctx, conn)
	if err != nil {
		return err
	}
	for from := 0; from < c.n; from += chunk {
		_, err := conn.ExecContext(ctx, statement, c.model, from, min(from+chunk, c.n), c.salt,
			c.oldest.UnixMicro(), c.step.Nanoseconds(), c.people, sentWithin.Microseconds())
		if err != nil {
			return fmt.Errorf("fill %s: %w", t.name, err)
		}
	}
	return rebuild(ctx)
}

// settings of the connections that fill tables: commits are asynchronous, because the rows can be
// generated again after a crash; and an index of ten million rows is sorted in memory.
var settings = []string{`SET synchronous_commit = off`, `SET maintenance_work_mem = '512MB'`}

// quote returns a list of columns for a statement.
func quote(columns []string) string { return `"` + strings.Join(columns, `", "`) + `"` }
