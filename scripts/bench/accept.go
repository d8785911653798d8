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
)

func accept() Section {
	return Section{Name: "accept", What: "POST /v1/email/send at 64 and 256 connections, beside a naive handler and pgbench", Run: runAccept}
}

// accepting is the two servers and what they are asked.
type accepting struct {
	rig       *Rig
	table     *Table
	ours      *System
	twin      *System // the reference's database
	api       *Program
	naive     *Program
	letter    letter
	serial    atomic.Int64
	statement string // pgbench's script
	warm      time.Duration
	length    time.Duration
}

func runAccept(ctx context.Context, r *Rig, t *Table) (err error) {
	a := &accepting{
		rig: r, table: t,
		warm: scale(r, time.Second, 300*time.Millisecond), length: scale(r, 4*time.Second, time.Second),
	}
	defer func() { err = errors.Join(err, a.close(context.WithoutCancel(ctx))) }()
	if err := a.open(ctx); err != nil {
		return err
	}
	for _, connections := range []int{64, 256} {
		err := t.Compare(ctx,
			Subject{Name: fmt.Sprintf("%d connections", connections), Unit: "emails/s", Measure: a.subject(connections)},
			Reference{Name: "naive gin + one INSERT", Budget: 2.6, Measure: a.reference(connections)},
			Reference{Name: "pgbench, one INSERT per commit, 64 clients", Moonshot: 1.5, Measure: a.pgbench},
		)
		if err != nil {
			return err
		}
	}
	return nil
}

func (a *accepting) open(ctx context.Context) (err error) {
	if a.letter, err = newLetter(); err != nil {
		return err
	}
	if a.ours, err = a.rig.NewSystem(ctx, nil); err != nil {
		return err
	}
	if a.api, err = a.ours.Start(ctx, "api", nil); err != nil {
		return err
	}
	if a.twin, err = a.rig.NewSystem(ctx, nil); err != nil {
		return err
	}
	if a.naive, err = a.twin.Start(ctx, "naive", nil); err != nil {
		return err
	}
	// pgbench inserts the row that the api made of a letter.
	if err := a.ours.Send(ctx, a.api, a.letter, a.serial.Add(1)); err != nil {
		return err
	}
	var row string
	if err := a.ours.Database.QueryRowContext(ctx, insertText).Scan(&row); err != nil {
		return fmt.Errorf("read the row of a letter: %w", err)
	}
	a.statement = filepath.Join(a.rig.cfg.Dir, "insert.sql")
	if err := os.WriteFile(a.statement, []byte(row), 0o600); err != nil {
		return fmt.Errorf("write pgbench's script: %w", err)
	}
	return nil
}

// insertText makes pgbench's script: it inserts a row like the one there is, with an id in
// the shape of UUIDv7, as the others do.
const insertText = `
SELECT E'\\set tail random(0, 4611686018427387904)\n' ||
    format('INSERT INTO email_outbox (id, company_id, lane_id, request_id, payload, sender, html, html_sha256, checker_version, expires_at) '
    'VALUES ((lpad(to_hex((extract(epoch FROM clock_timestamp()) * 1000)::bigint), 12, ''0'') || ''7000'' || lpad(to_hex(:tail::bigint), 16, ''0''))::uuid, '
    '%L, %L, %L, %L, %L, %L, %L, %L, now() + interval ''1 day'');',
    company_id, lane_id, request_id, payload, sender, html, html_sha256, checker_version)
FROM email_outbox LIMIT 1`

// subject is the api's rate at so many connections.
func (a *accepting) subject(connections int) Measure {
	return func(ctx context.Context) (float64, error) {
		prefix := fmt.Sprintf("%d connections: ", connections)
		m := newMeter(a.rig, []*Program{a.api}, a.rig.Postgres)
		p, err := a.pound(ctx, a.ours, a.api, connections, m)
		if err != nil {
			return 0, err
		}
		a.table.Record(Quantity{Name: prefix + "answer after, p50", Unit: "ms"}, milliseconds(p.p50))
		a.table.Record(Quantity{Name: prefix + "answer after, p99", Unit: "ms"}, milliseconds(p.p99))
		m.record(a.table, prefix, "email", float64(p.answers))
		return p.rate, nil
	}
}

func (a *accepting) reference(connections int) Measure {
	return func(ctx context.Context) (float64, error) {
		p, err := a.pound(ctx, a.twin, a.naive, connections, nil)
		return p.rate, err
	}
}

func (a *accepting) pgbench(ctx context.Context) (float64, error) {
	if err := a.empty(ctx, a.twin); err != nil {
		return 0, err
	}
	return pgbench(ctx, a.twin.DatabaseURL, a.statement, 64, max(1, int(a.length.Seconds())))
}

// pound lets the load run and checks that every answer stood for a row.
func (a *accepting) pound(ctx context.Context, s *System, p *Program, connections int, m *meter) (pounding, error) {
	if err := a.empty(ctx, s); err != nil {
		return pounding{}, err
	}
	h := hammer{addr: p.Addr, connections: connections, status: http.StatusAccepted, request: a.letter.request(s.Key), serial: &a.serial}
	seen, err := h.run(ctx, a.warm, a.length, m)
	if err != nil {
		return pounding{}, err
	}
	rows, err := s.Count(ctx, "SELECT count(*) FROM email_outbox")
	if err == nil && rows < int64(seen.answers) {
		err = fmt.Errorf("%s answered %d times, but there are %d rows", p.Kind, seen.answers, rows)
	}
	return seen, err
}

// empty makes every measurement begin with the same tables.
func (a *accepting) empty(ctx context.Context, s *System) error {
	if _, err := s.Database.ExecContext(ctx, "TRUNCATE email_outbox, idempotency_keys"); err != nil {
		return fmt.Errorf("empty the outbox: %w", err)
	}
	return s.Checkpoint(ctx)
}

func (a *accepting) close(ctx context.Context) error {
	errs := []error{a.rig.stopPrograms(ctx)}
	for _, s := range []*System{a.ours, a.twin} {
		if s != nil {
			errs = append(errs, s.Close(ctx))
		}
	}
	return errors.Join(errs...)
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
