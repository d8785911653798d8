package bench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"github.com/google/uuid"

	"email-gateway/scripts/bench/environment"
	"email-gateway/scripts/bench/load"
	"email-gateway/scripts/bench/reference"
	"email-gateway/scripts/bench/results"
	"email-gateway/shared/service"
)

func mailing() Section {
	return Section{Name: "mailing", What: "a CSV of 50,000 rows, first byte to COMPLETED, compared with a loop that renders and calls SendEmail", Run: runMailing}
}

const (
	// mailingConcurrency is the concurrency of the worker and of the loop; the worker is also
	// measured with fewConcurrency.
	mailingConcurrency = 256
	fewConcurrency     = 64
	// mailingCPU is the budget of CPU time per email, in µs, of all programs and servers together.
	mailingCPU = 450
)

// mailingRun holds a CSV, the environment of the programs that send it and the loop as their
// reference.
type mailingRun struct {
	environment *environment.Environment
	table       *results.Table
	upload      load.Upload
	ses         *environment.SES // of the programs and of the loop
	loop        *reference.MailingLoop
}

// runMailing measures a mailing from the first byte of its upload until Postgres has it as
// COMPLETED. Each measurement has a new database, so that it inserts all recipients, and stops its
// programs before the loop begins.
func runMailing(ctx context.Context, r *environment.Environment, t *results.Table) (err error) {
	m := &mailingRun{environment: r, table: t, upload: load.Upload{
		Rows: environment.Scale(r, 50_000, 5_000), Sheet: filepath.Join(r.Dir(), "mailing.csv"),
		Fields: map[string]string{"subject": reference.MailingSubject, "html": reference.MailingHTML()},
	}}
	if err := load.WriteSheet(m.upload.Sheet, m.upload.Rows); err != nil {
		return err
	}
	if m.ses, err = environment.NewSES(0, nil); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.ses.Close()) }()
	if m.loop, err = reference.NewMailingLoop(m.ses.URL, mailingConcurrency); err != nil {
		return err
	}
	name := fmt.Sprintf("CSV of %d rows, concurrency ", m.upload.Rows)
	for range t.Rounds() {
		many, err := m.turn(ctx, mailingConcurrency)
		if err != nil {
			return err
		}
		loop, err := m.loop.Run(ctx, m.upload.Rows)
		if err != nil {
			return err
		}
		few, err := m.turn(ctx, fewConcurrency)
		if err != nil {
			return err
		}
		t.Say("%s emails/s with %d, %s with %d, the loop %s", results.Figure(many), mailingConcurrency, results.Figure(few), fewConcurrency, results.Figure(loop))
		t.RecordPair(results.Subject{Name: name + strconv.Itoa(mailingConcurrency), Unit: "emails/s"},
			results.Reference{Name: "render and SendEmail in a loop, same concurrency", Budget: 0.33, Moonshot: 0.5}, many, loop)
		t.RecordPair(results.Subject{Name: name + strconv.Itoa(fewConcurrency), Unit: "emails/s"},
			results.Reference{Name: "concurrency " + strconv.Itoa(mailingConcurrency), Budget: 0.9, Moonshot: 1}, few, many)
	}
	return nil
}

// turn sends the mailing with a new system and returns the emails per second.
func (m *mailingRun) turn(ctx context.Context, concurrency int) (rate float64, err error) {
	env := throughput()
	env["WORKER_CONCURRENCY"] = strconv.Itoa(concurrency)
	g, err := openGateway(ctx, m.environment, gatewayOptions{env: env, ses: m.ses})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, g.close(context.WithoutCancel(ctx))) }()
	if err := g.start(ctx); err != nil {
		return 0, err
	}
	if err := g.warmUp(ctx); err != nil {
		return 0, err
	}
	if err := g.system.Vacuum(ctx); err != nil {
		return 0, err
	}
	before, err := workOf(ctx, g.system)
	if err != nil {
		return 0, err
	}
	w := environment.NewMeter([]*environment.Program{g.api, g.dispatcher, g.worker}, m.environment.Postgres, m.environment.Redis, m.environment.RabbitMQ)
	if err := w.Start(); err != nil {
		return 0, err
	}
	times, err := m.send(ctx, g)
	if err := errors.Join(err, w.Stop()); err != nil {
		return 0, err
	}
	after, err := workOf(ctx, g.system)
	if err != nil {
		return 0, err
	}

	prefix := fmt.Sprintf("concurrency %d: ", concurrency)
	w.Record(m.table, prefix, "email", float64(m.upload.Rows))
	all := results.Quantity{Name: prefix + "cpu per email, all of these", Unit: "µs"}
	if concurrency == mailingConcurrency {
		all.Budget = mailingCPU
	}
	m.table.Record(all, each(w.Spent, m.upload.Rows))
	emails := float64(m.upload.Rows)
	m.table.Record(results.Quantity{Name: prefix + "WAL per email", Unit: "kB"}, float64(after.written-before.written)/1e3/emails)
	m.table.Record(results.Quantity{Name: prefix + "transactions per 1,000 emails", Unit: ""}, float64(after.transactions-before.transactions)/emails*1e3)
	m.table.Record(results.Quantity{Name: prefix + "first byte to the api's answer", Unit: "s"}, times.answered.Seconds())
	m.table.Record(results.Quantity{Name: prefix + "last email at SES to COMPLETED", Unit: "s"}, (times.completed - times.sent).Seconds())
	return perSecond(m.upload.Rows, times.completed), nil
}

// work are Postgres's counters: bytes of WAL since its creation, and transactions in the system's
// database.
type work struct{ written, transactions int64 }

// workOf reads the counters. Those of other sessions are up to a second old.
func workOf(ctx context.Context, s *environment.System) (w work, err error) {
	if w.written, err = s.Count(ctx, "SELECT (pg_current_wal_lsn() - '0/0')::bigint"); err != nil {
		return work{}, err
	}
	w.transactions, err = s.Count(ctx, "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()")
	return w, err
}

// mailingTimes are the times of a mailing's steps, from the first byte of its upload.
type mailingTimes struct{ answered, sent, completed time.Duration }

// send uploads the CSV and waits until the mailing is COMPLETED and all its rows are SENT. It
// queries Postgres only when SES has received all emails.
func (m *mailingRun) send(ctx context.Context, g *gateway) (t mailingTimes, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, sendTimeout, fmt.Errorf("the mailing of %d rows did not end within %s", m.upload.Rows, sendTimeout))
	defer cancel()
	taken, start := g.ses.Taken(), time.Now()
	id, err := m.upload.Send(ctx, g.api.Addr, g.keys[0])
	if err != nil {
		return t, err
	}
	t.answered = time.Since(start)
	for g.ses.Taken() < taken+int64(m.upload.Rows) {
		if err := service.Pause(ctx, 2*time.Millisecond); err != nil {
			return t, fmt.Errorf("SES took %d: %w", g.ses.Taken()-taken, err)
		}
	}
	t.sent = time.Since(start)
	for {
		status, sent, err := g.mailing(ctx, id)
		switch {
		case err != nil:
			return t, err
		case status == "COMPLETED" && sent != m.upload.Rows:
			return t, fmt.Errorf("the mailing is COMPLETED with %d rows of %d sent", sent, m.upload.Rows)
		case status == "COMPLETED":
			t.completed = time.Since(start)
			return t, nil
		}
		if err := service.Pause(ctx, 5*time.Millisecond); err != nil {
			return t, fmt.Errorf("the mailing is %s: %w", status, err)
		}
	}
}

// mailing reads a mailing's status and its count of sent emails.
func (g *gateway) mailing(ctx context.Context, id uuid.UUID) (status string, sent int, err error) {
	err = g.system.Database.QueryRowContext(ctx, "SELECT status, sent FROM mailings WHERE id = $1", id).Scan(&status, &sent)
	if err != nil {
		return "", 0, fmt.Errorf("read mailing: %w", err)
	}
	return status, sent, nil
}
