package mailing_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/lib/pq"
	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/shared/service"
	"email-gateway/shared/store/quota"
	"email-gateway/shared/store/storetest"
	"email-gateway/worker/internal/dbcheck"
	"email-gateway/worker/internal/mailing"
	"email-gateway/worker/internal/mx"
	"email-gateway/worker/internal/queue"
)

// timeout is how long a test waits for something that should happen soon.
const timeout = 3 * time.Minute

// bench is a database with one company.
type bench struct {
	storetest.Database
	company uuid.UUID
}

func newBench(t *testing.T) bench {
	t.Helper()
	d := storetest.New(t)
	return bench{d, d.Company(t)}
}

// exec runs a statement.
func (b bench) exec(t testing.TB, statement string, args ...any) {
	t.Helper()
	if _, err := b.SQL.ExecContext(context.WithoutCancel(t.Context()), statement, args...); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// ask returns the single value of a query.
func ask[V any](t testing.TB, b bench, query string, args ...any) V {
	t.Helper()
	var value V
	if err := b.SQL.QueryRowContext(t.Context(), query, args...).Scan(&value); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return value
}

// want fails the test if the query returns another text.
func (b bench) want(t testing.TB, want, query string, args ...any) {
	t.Helper()
	if got := ask[string](t, b, query, args...); got != want {
		t.Errorf("%s: %s, want %s", query, got, want)
	}
}

// entry is a line of a test's mailing.
type entry struct {
	email, externalID, hash, nome string
	cidade                        string
	enc                           []byte
	invalid                       string
}

// mailing inserts a mailing that waits for its first job, and returns its id and those of its
// entries.
func (b bench) mailing(t *testing.T, entries ...entry) (uuid.UUID, []uuid.UUID) {
	t.Helper()
	id, ids := uuid.Must(uuid.NewV7()), make([]uuid.UUID, len(entries))
	invalid := 0
	for i, e := range entries {
		ids[i] = uuid.Must(uuid.NewV7())
		status := "PENDING"
		if e.invalid != "" {
			status, invalid = "INVALID", invalid+1
		}
		b.exec(t, `INSERT INTO mailing_entries (id, mailing_id, line_no, email, token, status, invalid_reason, fields, nome, recipient_external_id, cpf_cnpj_hash, cpf_cnpj_enc)
			VALUES ($1, $2, $3, $4, 'tok', $5, nullif($6, ''), $7, nullif($8, ''), nullif($9, ''), nullif($10, ''), $11)`,
			ids[i], id, i+2, e.email, status, e.invalid, pq.Array([]string{e.cidade}), e.nome, e.externalID, e.hash, e.enc)
	}
	var first, last *uuid.UUID
	if len(ids) > 0 {
		first, last = &ids[0], &ids[len(ids)-1]
	}
	b.exec(t, `INSERT INTO mailings (id, company_id, request_id, filename, storage_url, file_sha256, request_sha256, answer, subject, html, html_sha256,
			checker_version, fields, sender, reply_to, tags, status, first_entry, last_entry, total_lines, accepted, invalid, duplicates, counted_at)
		VALUES ($1, $2, 'req-1', ($1::uuid)::text, 'file:///a', sha256('a'), sha256('b'), '', 'Olá {{nome}} de {{cidade}}', '<p>', sha256('c'), 1, '{cidade}',
			'Acme <billing@acme.example>', 'help@acme.example', '{natal}', 'QUEUED', $3, $4, $5, $6, $7, 0, now())`,
		id, b.company, first, last, len(ids), len(ids)-invalid, invalid)
	b.exec(t, `INSERT INTO dispatch_lanes (company_id, queue, mailing_id) VALUES ($1, 'email:send:low', $2)`, b.company, id)
	return id, ids
}

// limitEmailsPerDay sets the company's daily quota of emails; 0 is unlimited.
func (b bench) limitEmailsPerDay(t *testing.T, limit int64) {
	t.Helper()
	err := b.Store.SetQuotas(t.Context(), storetest.Operator(), b.company, map[quota.Quota]*int64{quota.EmailsPerDay: &limit})
	if err != nil {
		t.Fatal(err)
	}
}

// many returns n plain entries.
func many(n int) []entry {
	entries := make([]entry, n)
	for i := range entries {
		entries[i] = entry{email: fmt.Sprintf("user%d@example.com", i), nome: "Ana", cidade: "Recife", externalID: fmt.Sprintf("C-%d", i)}
	}
	return entries
}

// domains are the results of domain checks; unknown domains are valid.
type domains map[string]mx.Result

func (d domains) Check(ctx context.Context, domain string) (mx.Result, error) {
	if v, ok := d[domain]; ok {
		return v, nil
	}
	return mx.Result{Valid: true}, ctx.Err()
}

func (b bench) params() mailing.Params {
	return mailing.Params{
		Log: slog.New(slog.DiscardHandler), Store: b.Store, Database: dbcheck.New(slog.New(slog.DiscardHandler), b.Store.Confirm),
		Domains: domains{}, Metrics: mailing.NewMetrics(prometheus.NewRegistry()),
		UnsubscribeURL: func(_, _ uuid.UUID, address string) string { return "https://u.example/" + address },
		Lead:           50_000, StaleAfter: 30 * time.Second, JobTime: time.Minute,
	}
}

func taskOf(id uuid.UUID, generation int) queue.Task {
	return queue.Task{
		ID: uuid.Must(uuid.NewV7()).String(), Queue: "mailing.jobs.process",
		Payload: fmt.Appendf(nil, `{"mailingId":"%s","storageUrl":"file:///a","generation":%d}`, id, generation),
	}
}

// handle runs one job.
func handle(ctx context.Context, p mailing.Params, task queue.Task) error {
	return mailing.New(p).Handle(ctx, []queue.Task{task})[0]
}

// published takes the jobs from the outbox, as the dispatcher does.
func (b bench) published(t testing.TB) []queue.Task {
	t.Helper()
	rows, err := b.SQL.QueryContext(t.Context(), `UPDATE email_outbox SET status = 'PUBLISHED', processed_at = now()
		WHERE target = 'mailing.process' AND status = 'PENDING' RETURNING id, payload`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var tasks []queue.Task
	for rows.Next() {
		task := queue.Task{Queue: "mailing.jobs.process"}
		var payload json.RawMessage
		if err := rows.Scan(&task.ID, &payload); err != nil {
			t.Fatal(err)
		}
		task.Payload = payload
		tasks = append(tasks, task)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return tasks
}

// drain runs jobs until none is left.
func (b bench) drain(t testing.TB, p mailing.Params) {
	t.Helper()
	for tasks := b.published(t); len(tasks) > 0; tasks = b.published(t) {
		for _, task := range tasks {
			if err := handle(t.Context(), p, task); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// expandedOnce checks that every entry of the mailing is one email.
func (b bench) expandedOnce(t testing.TB, id uuid.UUID, n int) {
	t.Helper()
	b.want(t, "SENDING", `SELECT status FROM mailings WHERE id = $1`, id)
	b.want(t, "true true true", `SELECT (expanded_to = last_entry)::text || ' ' || (expanded_at IS NOT NULL) || ' ' || (last_attempt IS NULL) FROM mailings WHERE id = $1`, id)
	b.want(t, fmt.Sprint(n), `SELECT processed_lines::text FROM mailings WHERE id = $1`, id)
	b.want(t, fmt.Sprint(n), `SELECT count(*)::text FROM mailing_entries e JOIN email_outbox o ON o.id = e.id WHERE e.mailing_id = $1 AND e.status = 'QUEUED'`, id)
	b.want(t, fmt.Sprint(n), `SELECT count(*)::text FROM email_outbox WHERE target = 'email:send'`)
	b.want(t, "0", `SELECT count(*)::text FROM email_outbox WHERE target = 'mailing.process' AND status = 'PENDING'`)
}

// start runs a loop until the test ends.
func start(t *testing.T, s service.Service) {
	t.Helper()
	if err := s.Start(t.Context(), func(err error) { t.Error(err) }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		if err := s.Stop(ctx); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
}
