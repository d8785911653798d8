package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"email-gateway/scripts/bench/environment"
	"email-gateway/scripts/bench/load"
	"email-gateway/scripts/bench/results"
)

func accept() Section {
	return Section{Name: "accept", What: "POST /v1/email/send at 64 and 256 connections, compared with a naive handler and pgbench; batches of 500, compared with single sends", Run: runAccept}
}

// accepting holds the two servers and their load.
type accepting struct {
	environment     *environment.Environment
	table           *results.Table
	ours            *environment.System
	referenceSystem *environment.System // the reference's database
	api             *environment.Program
	naive           *environment.Program
	emailTemplate   environment.EmailTemplate
	serial          atomic.Int64
	statement       string // pgbench's script
	warm            time.Duration
	length          time.Duration
}

func runAccept(ctx context.Context, r *environment.Environment, t *results.Table) (err error) {
	a := &accepting{
		environment: r, table: t,
		warm: environment.Scale(r, time.Second, 300*time.Millisecond), length: environment.Scale(r, 4*time.Second, time.Second),
	}
	defer func() { err = errors.Join(err, a.close(context.WithoutCancel(ctx))) }()
	if err := a.open(ctx); err != nil {
		return err
	}
	for _, connections := range []int{64, 256} {
		err := t.Compare(ctx,
			results.Subject{Name: fmt.Sprintf("%d connections", connections), Unit: "emails/s", Measure: a.subject(connections)},
			results.Reference{Name: "naive gin + one INSERT", Budget: 2.6, Measure: a.reference(connections)},
			results.Reference{Name: "pgbench, one INSERT per commit, 64 clients", Moonshot: 1.5, Measure: a.pgbench},
		)
		if err != nil {
			return err
		}
	}
	return a.compareBatches(ctx)
}

func (a *accepting) open(ctx context.Context) (err error) {
	if a.emailTemplate, err = environment.NewEmailTemplate(); err != nil {
		return err
	}
	if a.ours, err = a.environment.NewSystem(ctx, nil); err != nil {
		return err
	}
	if a.api, err = a.ours.Start(ctx, "api", nil); err != nil {
		return err
	}
	if a.referenceSystem, err = a.environment.NewSystem(ctx, nil); err != nil {
		return err
	}
	if a.naive, err = a.referenceSystem.Start(ctx, "naive", nil); err != nil {
		return err
	}
	// pgbench inserts the same row as the api.
	if err := a.ours.Send(ctx, a.api, a.emailTemplate, a.serial.Add(1)); err != nil {
		return err
	}
	var row string
	if err := a.ours.Database.QueryRowContext(ctx, insertText).Scan(&row); err != nil {
		return fmt.Errorf("read the row of an email: %w", err)
	}
	a.statement = filepath.Join(a.environment.Dir(), "insert.sql")
	if err := os.WriteFile(a.statement, []byte(row), 0o600); err != nil {
		return fmt.Errorf("write pgbench's script: %w", err)
	}
	return nil
}

// insertText returns pgbench's script: it inserts a copy of the existing row, with an id in the
// format of UUIDv7, as the others do.
const insertText = `
SELECT E'\\set tail random(0, 4611686018427387904)\n' ||
    format('INSERT INTO email_outbox (id, company_id, lane_id, request_id, payload, sender, html, html_sha256, checker_version, expires_at) '
    'VALUES ((lpad(to_hex((extract(epoch FROM clock_timestamp()) * 1000)::bigint), 12, ''0'') || ''7000'' || lpad(to_hex(:tail::bigint), 16, ''0''))::uuid, '
    '%L, %L, %L, %L, %L, %L, %L, %L, now() + interval ''1 day'');',
    company_id, lane_id, request_id, payload, sender, html, html_sha256, checker_version)
FROM email_outbox LIMIT 1`

// subject measures the api's rate with that number of connections.
func (a *accepting) subject(connections int) results.Measure {
	return func(ctx context.Context) (float64, error) {
		prefix := fmt.Sprintf("%d connections: ", connections)
		m := environment.NewMeter([]*environment.Program{a.api}, a.environment.Postgres)
		p, err := a.runLoad(ctx, a.ours, a.api, connections, m)
		if err != nil {
			return 0, err
		}
		a.table.Record(results.Quantity{Name: prefix + "answer after, p50", Unit: "ms"}, milliseconds(p.P50))
		a.table.Record(results.Quantity{Name: prefix + "answer after, p99", Unit: "ms"}, milliseconds(p.P99))
		m.Record(a.table, prefix, "email", float64(p.Responses))
		return p.Rate, nil
	}
}

func (a *accepting) reference(connections int) results.Measure {
	return func(ctx context.Context) (float64, error) {
		p, err := a.runLoad(ctx, a.referenceSystem, a.naive, connections, nil)
		return p.Rate, err
	}
}

func (a *accepting) pgbench(ctx context.Context) (float64, error) {
	if err := a.empty(ctx, a.referenceSystem); err != nil {
		return 0, err
	}
	return environment.Pgbench(ctx, a.referenceSystem.DatabaseURL, a.statement, 64, max(1, int(a.length.Seconds())))
}

// runLoad runs the load generator and checks that every response has a row.
func (a *accepting) runLoad(ctx context.Context, s *environment.System, p *environment.Program, connections int, m *environment.Meter) (load.Result, error) {
	if err := a.empty(ctx, s); err != nil {
		return load.Result{}, err
	}
	h := load.Generator{Addr: p.Addr, Connections: connections, Status: http.StatusAccepted, Request: a.emailTemplate.Request(s.Key), Serial: &a.serial}
	seen, err := h.Run(ctx, a.warm, a.length, m)
	if err != nil {
		return load.Result{}, err
	}
	rows, err := s.Count(ctx, "SELECT count(*) FROM email_outbox")
	if err == nil && rows < int64(seen.Responses) {
		err = fmt.Errorf("%s accepted %d emails, but there are %d rows", p.Kind, seen.Responses, rows)
	}
	return seen, err
}

// empty truncates the tables, so that every measurement begins in the same state.
func (a *accepting) empty(ctx context.Context, s *environment.System) error {
	if _, err := s.Database.ExecContext(ctx, "TRUNCATE email_outbox, idempotency_keys"); err != nil {
		return fmt.Errorf("empty the outbox: %w", err)
	}
	return s.Checkpoint(ctx)
}

func (a *accepting) close(ctx context.Context) error {
	errs := []error{a.environment.StopPrograms(ctx)}
	for _, s := range []*environment.System{a.ours, a.referenceSystem} {
		if s != nil {
			errs = append(errs, s.Close(ctx))
		}
	}
	return errors.Join(errs...)
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
