// Package process contains the SQL statements of process_status, in which each dispatcher and worker reports its own state.
package process

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jmoiron/sqlx"

	"email-gateway/shared/store/internal/pg"
)

// Store runs the statements of process_status. It is safe for concurrent use.
type Store struct{ db *pg.DB }

// New returns a Store that uses the connections of db.
func New(db *pg.DB) *Store { return &Store{db: db} }

// Status is the last report of one dispatcher or worker about itself and the systems it connects to.
type Status struct {
	Service   string          `db:"service"`
	Instance  string          `db:"instance"`
	StartedAt time.Time       `db:"started_at"`
	Age       time.Duration   `db:"-"`
	AgeMS     int64           `db:"age_ms"`
	Details   json.RawMessage `db:"details"`
}

// reportTTL is how long a process counts as running after its last report: three times the interval of
// reports, which is 5 s.
const reportTTL = 15 * time.Second

// Live reports whether the process still counts as running.
func (p Status) Live() bool { return p.Age <= reportTTL }

// reportSQL writes the instance's one row and deletes instances that have not reported for an hour, or whose report is from a
// server whose clock was ahead: those that are running report again. It adds how the
// process's connections commit: no other session can read that.
const reportSQL = `
WITH gone AS (DELETE FROM process_status WHERE updated_at NOT BETWEEN now() - interval '1 hour' AND now() + interval '1 minute')
INSERT INTO process_status (service, instance, started_at, details) VALUES ($1, $2, $3,
    CASE jsonb_typeof($4::jsonb) WHEN 'object' THEN $4::jsonb || jsonb_build_object('synchronousCommit', current_setting('synchronous_commit')) ELSE $4::jsonb END)
ON CONFLICT (service, instance) DO UPDATE SET updated_at = now(), started_at = excluded.started_at, details = excluded.details`

// ReportStatus stores a report of a process. details is encoded as JSON; an object gets the field synchronousCommit.
// The error of a timeout is also pg.ErrUnreplicated if no standby has confirmed the commit; see store.Store.Confirm.
func (s *Store) ReportStatus(ctx context.Context, service, instance string, startedAt time.Time, details any) error {
	text, err := json.Marshal(details)
	if err != nil {
		return fmt.Errorf("encode status: %w", err)
	}
	if _, err := s.db.Exec(ctx, reportSQL, service, instance, startedAt, string(text)); err != nil {
		return fmt.Errorf("report status: %w", s.db.ExplainTimeout(ctx, err))
	}
	return nil
}

// withdrawSQL deletes one row by primary key.
const withdrawSQL = `DELETE FROM process_status WHERE service = $1 AND instance = $2`

// WithdrawStatus deletes the instance's row when it shuts down cleanly.
func (s *Store) WithdrawStatus(ctx context.Context, service, instance string) error {
	if _, err := s.db.Exec(ctx, withdrawSQL, service, instance); err != nil {
		return fmt.Errorf("withdraw status: %w", err)
	}
	return nil
}

// listStatusSQL reads the whole table: one row per process.
const listStatusSQL = `
SELECT service, instance, started_at, details, abs(extract(epoch FROM now() - updated_at) * 1000)::bigint AS age_ms
FROM process_status ORDER BY service, instance`

// ProcessStatuses lists the last report of every process, with its age by Postgres's clock. One that is ahead of this clock is
// as old as it is ahead.
func (s *Store) ProcessStatuses(ctx context.Context) ([]Status, error) {
	var all []Status
	if err := s.db.SelectContext(ctx, &all, listStatusSQL); err != nil {
		return nil, fmt.Errorf("list process status: %w", pg.Translate(err))
	}
	for i := range all {
		all[i].Age = time.Duration(all[i].AgeMS) * time.Millisecond
	}
	return all, nil
}

// liveSQL finds rows by the first column of the primary key.
const liveSQL = `
SELECT count(*) FROM process_status WHERE service = $1 AND updated_at BETWEEN now() - $2 * interval '1 ms' AND now() + $2 * interval '1 ms'`

// LiveProcesses counts the service's processes that reported within reportTTL.
func (s *Store) LiveProcesses(ctx context.Context, service string) (int, error) {
	var n int
	if err := s.db.GetContext(ctx, &n, liveSQL, service, reportTTL.Milliseconds()); err != nil {
		return 0, fmt.Errorf("count processes: %w", pg.Translate(err))
	}
	return n, nil
}

// anyLiveSQL reads the whole table: one row per process.
const anyLiveSQL = `SELECT EXISTS (SELECT FROM process_status WHERE updated_at BETWEEN now() - $1 * interval '1 ms' AND now() + $1 * interval '1 ms')`

// AnyLive reports whether a dispatcher or worker has reported within reportTTL.
func AnyLive(ctx context.Context, tx *sqlx.Tx) (live bool, err error) {
	if err := tx.GetContext(ctx, &live, anyLiveSQL, reportTTL.Milliseconds()); err != nil {
		return false, fmt.Errorf("look for processes: %w", pg.Translate(err))
	}
	return live, nil
}
