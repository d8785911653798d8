package maintenance_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"email-gateway/shared/blob"
	"email-gateway/shared/email"
	"email-gateway/shared/logtest"
	"email-gateway/shared/store/audit"
	"email-gateway/shared/store/event"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/retention"
	"email-gateway/shared/store/storetest"
	"email-gateway/shared/store/tenant"
	"email-gateway/shared/store/webhook"
	"email-gateway/shared/waittest"
	"email-gateway/worker/internal/maintenance"
	"email-gateway/worker/internal/queue/asynqueue"
	"email-gateway/worker/internal/queue/redistest"
)

const day = 24 * time.Hour

var usualAges = maintenance.Ages{
	Outbox: 30 * day, Bodies: 30 * day, Files: 30 * day, Entries: 365 * day, Logs: 365 * day, Events: 365 * day, DeletedRecipients: 400 * day, Hashes: 90 * day,
}

// cleaners runs all cleaners until the test ends; change may be nil.
func cleaners(t *testing.T, d storetest.Database, change func(*maintenance.CleanersParams)) (*prometheus.Registry, *logtest.Buffer) {
	t.Helper()
	registry, log := prometheus.NewRegistry(), &logtest.Buffer{}
	p := maintenance.CleanersParams{
		Log: slog.New(slog.NewTextHandler(log, nil)), Store: d.Store, Retention: retention.New(d.Store.DB()), Feed: event.New(d.Store.DB()), Webhooks: webhook.New(d.Store.DB()), Archive: newQueue(t), Actions: maintenance.NewActions(registry), Ages: usualAges,
	}
	if change != nil {
		change(&p)
	}
	for _, c := range maintenance.NewCleaners(p) {
		run(t, c.Service)
	}
	return registry, log
}

// done returns the metric's value for an action.
func done(t *testing.T, action string, from ...*prometheus.Registry) int {
	t.Helper()
	return counted(t, from, "maintenance_actions_total", action)
}

func execute(t *testing.T, d storetest.Database, statement string, args ...any) {
	t.Helper()
	if _, err := d.SQL.ExecContext(t.Context(), statement, args...); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// Expired data of each kind is deleted in several batches; other data stays.
func TestCleaners(t *testing.T) {
	t.Parallel()
	for action, tt := range map[string]struct {
		fill, left string
		want       int
		gone       int
	}{
		"idempotency_key_expired": {`
			INSERT INTO idempotency_keys (company_id, route, key, body_sha256, status, answer, outbox_id, expires_at)
			SELECT $1, 'send', n::text, sha256('{}'), 202, '{}', gen_random_uuid(), now() + CASE WHEN n <= 2500 THEN interval '-1 s' ELSE interval '1 h' END
			FROM generate_series(1, 2510) n`, `SELECT count(*) FROM idempotency_keys`, 10, 2500},
		"notification_expired": {`
			INSERT INTO ses_events (sns_message_id, kind, received_at)
			SELECT n::text, coalesce(left($1::uuid::text, 0), '') || 'Send', now() - CASE WHEN n <= 2500 THEN interval '31 days' ELSE interval '29 days' END
			FROM generate_series(1, 2510) n`, `SELECT count(*) FROM ses_events`, 10, 2500},
		"event_feed_expired": {`
			WITH assigned AS (UPDATE event_positions SET newest = 2510)
			INSERT INTO event_feed (company_id, position, email_ids, first_seqs, last_seqs, created_at)
			SELECT $1, n, ARRAY[gen_random_uuid()], '{1}', '{1}', now() - CASE WHEN n <= 2500 THEN interval '31 days' ELSE interval '29 days' END
			FROM generate_series(1, 2510) n`, `SELECT count(*) FROM event_feed`, 10, 2500},
		"audit_expired": {
			`
			INSERT INTO operator_audit (company_id, operator, action, at)
			SELECT $1, 'ana', 'gate.hold', now() - CASE WHEN n <= 2500 THEN interval '2 years 1 day' ELSE interval '1 year 364 days' END FROM generate_series(1, 2510) n`,
			`SELECT count(*) FROM operator_audit WHERE action = 'gate.hold'`, 10, 2500,
		},
		"dead_letter_expired": {
			`
			INSERT INTO dead_letters (id, company_id, target, reason, payload, created_at)
			SELECT gen_random_uuid(), $1, 'email:send', 'SES_REJECTED', '{}', now() - n * interval '2 days' FROM generate_series(3, 4) n`,
			`SELECT count(*) FROM dead_letters`, 1, 1,
		},
		"replay_expired": {
			`
			INSERT INTO dead_letter_replays (id, company_id, action, filter, requested_by, rate, matched, status, finished_at)
			SELECT gen_random_uuid(), $1, 'retry', '{}', 'api:key', 1, 0, 'COMPLETED', now() - n * interval '1 day' FROM generate_series(29, 31) n`,
			`SELECT count(*) FROM dead_letter_replays`, 1, 2,
		},
		"outbox_row_expired": {
			`
			INSERT INTO email_outbox (id, company_id, lane_id, target, request_id, payload, status, processed_at, expires_at)
			SELECT overlay(first_id_at(now() - n * interval '10 min')::text placing substr(md5(n::text), 1, 12) from 25)::uuid, $1, 1, 'mailing.process', 'r', '{}', 'PUBLISHED',
			       now() - n * interval '10 min', now() FROM generate_series(1, 6 * 24 * 40) n`,
			`SELECT count(*) FROM email_outbox`, 6*24*30 - 1, 6*24*10 + 1,
		},
		"recipient_expired": {
			`
			INSERT INTO recipients (id, company_id, email, deleted_at)
			SELECT gen_random_uuid(), $1, 'a@example.com', now() - n * interval '1 day' FROM generate_series(398, 402) n`,
			`SELECT count(*) FROM recipients`, 2, 3,
		},
		"log_expired": {`
			INSERT INTO email_logs (outbox_id, company_id, recipient, subject, status, attempts, request_id, expires_at, created_at, event_seq, last_event)
			SELECT first_id_at(now() - n * interval '1 day'), $1, 'a@example.com', 's', 'CANCELLED', 0, 'r', now(), now(), 1, 'CANCELLED'
			FROM generate_series(363, 367) n`, `SELECT count(*) FROM email_logs`, 2, 3},
		"aggregate_expired": {
			`
			WITH logged AS (
				INSERT INTO email_logs (outbox_id, company_id, recipient, subject, status, attempts, request_id, expires_at, created_at, event_seq, last_event)
				SELECT first_id_at(now() - interval '364 days'), $1, 'a@example.com', 's', 'CANCELLED', 0, 'r', now(), now(), 1, 'CANCELLED'
			)
			INSERT INTO outbox_aggregates (company_id, aggregate_type, aggregate_id, event_type, outbox_id)
			SELECT $1, 'interview', n::text, 'REMINDER', first_id_at(now() - n * interval '1 day') FROM generate_series(364, 368) n`,
			`SELECT count(*) FROM outbox_aggregates`, 1, 4,
		},
		"mailing_value_expired": {
			`
			WITH made AS (
				INSERT INTO mailings (id, company_id, request_id, filename, storage_url, file_sha256, request_sha256, answer, subject, html, html_sha256, checker_version, fields,
					sender, status, first_entry, last_entry, expanded_at, total_lines, accepted, invalid, duplicates, counted_at, updated_at)
				SELECT gen_random_uuid(), $1, 'r', n || '.csv', 'file:///a', sha256('a'), sha256('b'), '', 's', '<p>', sha256('c'), 1, '{}', 'a@acme.example',
					'CANCELLED', lpad(n::text, 32, '0')::uuid, lpad(n::text, 32, '9')::uuid, now(), 1, 1, 0, 0, now(), now() - n * interval '1 day'
				FROM generate_series(29, 31, 2) n RETURNING id, first_entry
			)
			INSERT INTO mailing_entries (id, mailing_id, line_no, email, token) SELECT first_entry, id, 2, 'a@example.com', 't' FROM made`,
			`SELECT count(*) FROM mailing_entries WHERE token <> ''`, 1, 1,
		},
		"mailing_template_expired": {
			`
			INSERT INTO mailings (id, company_id, request_id, filename, storage_url, file_sha256, request_sha256, answer, subject, html, html_sha256, checker_version, fields,
				sender, status, expanded_at, total_lines, accepted, invalid, duplicates, counted_at, updated_at)
			SELECT gen_random_uuid(), $1, 'r', n || '.csv', 'file:///a', sha256('a'), sha256('b'), '', 's', '<p>', sha256('c'), 1, '{}', 'a@acme.example',
				'CANCELLED', now(), 1, 1, 0, 0, now(), now() - n * interval '1 day'
			FROM generate_series(29, 31, 2) n`,
			`SELECT count(*) FROM mailings WHERE html <> ''`, 1, 1,
		},
		"hash_expired": {
			`
			WITH person AS (
				INSERT INTO recipients (id, company_id, email, cpf_cnpj_hash, updated_at)
				SELECT gen_random_uuid(), $1, 'a@example.com', repeat('a', 64), now() - n * interval '1 day' FROM generate_series(88, 92) n
			), made AS (
				INSERT INTO mailings (id, company_id, request_id, filename, storage_url, file_sha256, request_sha256, answer, subject, html, html_sha256, checker_version, fields,
					sender, status, first_entry, last_entry, expanded_at, total_lines, accepted, invalid, duplicates, counted_at, updated_at)
				SELECT gen_random_uuid(), $1, 'r', 'a.csv', 'file:///a', sha256('a'), sha256('b'), '', 's', '<p>', sha256('c'), 1, '{}', 'a@acme.example',
					'FAILED', lpad('1', 32, '0')::uuid, lpad('1', 32, '9')::uuid, now(), 1, 1, 0, 0, now(), now() - interval '91 days'
				RETURNING id, first_entry
			)
			INSERT INTO mailing_entries (id, mailing_id, line_no, email, token, cpf_cnpj_hash) SELECT first_entry, id, 2, 'a@example.com', 't', repeat('a', 64) FROM made`,
			`SELECT (SELECT count(*) FROM recipients WHERE cpf_cnpj_hash IS NOT NULL) + (SELECT count(*) FROM mailing_entries WHERE cpf_cnpj_hash IS NOT NULL)`, 3, 3,
		},
		"mailing_entry_expired": { // mailings with a template would be skipped: its erasure locks the row, and the next round is an hour later
			`
			WITH old AS (
				INSERT INTO mailings (id, company_id, request_id, filename, storage_url, file_sha256, request_sha256, answer, subject, html, html_sha256, checker_version, fields,
					sender, status, first_entry, last_entry, expanded_at, total_lines, accepted, invalid, duplicates, counted_at, updated_at)
				SELECT gen_random_uuid(), $1, 'r', n || '.csv', 'file:///a', sha256('a'), sha256('b'), '', 's', '', sha256('c'), 1, '{}', 'a@acme.example',
					'CANCELLED', lpad(n::text, 32, '0')::uuid, lpad(n::text, 32, '9')::uuid, now(), 1, 1, 0, 0, now(), now() - n * interval '1 day'
				FROM generate_series(364, 366, 2) n RETURNING id, first_entry
			)
			INSERT INTO mailing_entries (id, mailing_id, line_no, email, token) SELECT first_entry, id, 2, 'a@example.com', '' FROM old`,
			`SELECT count(*) FROM mailing_entries`, 1, 1,
		},
		"failed_mailing_cancelled": {
			`
			WITH failed AS (
				INSERT INTO mailings (id, company_id, request_id, filename, storage_url, file_sha256, request_sha256, answer, subject, html, html_sha256, checker_version, fields,
					sender, status, expanded_at, total_lines, accepted, invalid, duplicates)
				SELECT gen_random_uuid(), $1, 'r', n || '.csv', 'file:///a', sha256('a'), sha256('b'), '', 's', '', sha256('c'), 1, '{}', 'a@acme.example', 'FAILED', now(), 1, 1, 0, 0
				FROM generate_series(1, 2) n RETURNING id, filename
			)
			INSERT INTO dead_letters (id, company_id, mailing_id, target, reason, payload)
			SELECT gen_random_uuid(), $1, id, 'mailing.process', 'MAILING_JOB_FAILED', '{}' FROM failed WHERE filename = '1.csv'`,
			`SELECT count(*) FROM mailings WHERE status = 'FAILED'`, 1, 1,
		},
	} {
		t.Run(action, func(t *testing.T) {
			t.Parallel()
			d := storetest.New(t)
			execute(t, d, tt.fill, d.Company(t))
			first, _ := cleaners(t, d, nil)
			second, _ := cleaners(t, d, nil) // a second dispatcher's cleaners
			waittest.Until(t, "only what is in time is left", func() bool { return number(t, d, tt.left) == tt.want })
			waittest.Until(t, "each is counted once", func() bool { return done(t, action, first, second) == tt.gone })
		})
	}
}

// The archive of each queue keeps its newest 500 tasks, however young the others are: their payloads would fill Redis.
func TestCleaners_ArchiveSize(t *testing.T) {
	t.Parallel()
	const archived, kept = 1600, 500
	d := storetest.New(t)
	url, prefix := redistest.Shared(t)
	conn, err := asynqueue.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	conn = conn.WithPrefix(prefix)
	publisher, client := asynqueue.NewPublisher(conn), conn.Client()
	t.Cleanup(func() { _ = errors.Join(publisher.Close(), client.Close()) })
	now := time.Now().Unix()
	for _, queue := range email.Queues() {
		base, pipe := "asynq:{"+prefix+queue+"}:", client.Pipeline()
		for i := range archived {
			id := fmt.Sprint("t", i)
			pipe.ZAdd(t.Context(), base+"archived", redis.Z{Score: float64(now - archived + int64(i)), Member: id})
			pipe.HSet(t.Context(), base+"t:"+id, "state", "archived", "msg", strings.Repeat("x", 100))
		}
		if _, err := pipe.Exec(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	registry, _ := cleaners(t, d, func(p *maintenance.CleanersParams) { p.Archive = publisher })
	for _, queue := range email.Queues() {
		base := "asynq:{" + prefix + queue + "}:"
		waittest.Until(t, "the older tasks of "+queue+" are deleted", func() bool { return client.ZCard(t.Context(), base+"archived").Val() <= kept })
		left := client.ZRange(t.Context(), base+"archived", 0, -1).Val()
		if len(left) != kept || left[0] != fmt.Sprint("t", archived-kept) || client.Exists(t.Context(), base+"t:t0").Val() != 0 {
			t.Errorf("%s: %d are left, the oldest is %s", queue, len(left), left[0])
		}
	}
	waittest.Until(t, "each is counted", func() bool { return done(t, "archived_task_trimmed", registry) == len(email.Queues())*(archived-kept) })
}

// A company's shorter retention applies to it; unlimited retention keeps everything.
func TestCleaners_Companies(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company, other := d.Company(t), d.Company(t)
	seven := 7
	if _, err := d.Store.SetRetention(t.Context(), audit.Operator{Name: "ana"}, tenant.Retention{CompanyID: company, Bodies: &seven, Logs: &seven}); err != nil {
		t.Fatal(err)
	}
	ids := map[string]uuid.UUID{}
	for _, of := range []struct {
		name string
		uuid.UUID
	}{{"company", company}, {"other", other}} {
		ids[of.name] = d.Accept(t, of.UUID, func(e *outbox.NewEmail) {
			e.ID = uuid.MustParse(text(t, d, `SELECT overlay(first_id_at(now() - interval '8 days')::text placing left($1, 12) from 25)`, of.String()[24:]))
		})
		if _, err := d.Store.Advance(t.Context(), outbox.Transition{
			ID: ids[of.name], Guard: outbox.GuardOpen, Status: email.Cancelled, Events: []email.Event{{Type: email.EventCancelled, At: time.Now()}},
		}); err != nil {
			t.Fatal(err)
		}
	}
	execute(t, d, `UPDATE email_outbox SET processed_at = now() - interval '8 days'`)
	cleaners(t, d, func(p *maintenance.CleanersParams) { p.Ages = maintenance.Ages{} })
	waittest.Until(t, "its body is gone", func() bool {
		return number(t, d, fmt.Sprintf(`SELECT count(*) FROM email_outbox WHERE id = '%s' AND body_erased_at IS NOT NULL`, ids["company"])) == 1
	})
	waittest.Until(t, "its log was looked at", func() bool {
		return number(t, d, fmt.Sprintf(`SELECT count(*) FROM retention_walks WHERE kind = 'logs' AND reached = '%s'`, ids["company"])) == 1
	})
	if n := number(t, d, `SELECT count(*) FROM email_logs`); n != 2 {
		t.Errorf("%d logs are left", n)
	}
	execute(t, d, `DELETE FROM email_outbox`)
	execute(t, d, `DELETE FROM retention_walks`)
	cleaners(t, d, func(p *maintenance.CleanersParams) { p.Ages = maintenance.Ages{} })
	waittest.Until(t, "its log is gone", func() bool { return number(t, d, `SELECT count(*) FROM email_logs`) == 1 })
	if left := text(t, d, `SELECT outbox_id FROM email_logs`); left != ids["other"].String() {
		t.Errorf("left is %s, not %s", left, ids["other"])
	}
}

// If a single company has a retention of hashes, only its hashes are erased. Without any, no table
// is scanned.
func TestCleaners_HashesOfOneCompany(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company, other := d.Company(t), d.Company(t)
	execute(t, d, `
		INSERT INTO recipients (id, company_id, email, cpf_cnpj_hash, updated_at)
		SELECT gen_random_uuid(), c.id, 'a@example.com', repeat('a', 64), now() - interval '8 days' FROM companies c`)
	forEver := func(p *maintenance.CleanersParams) { p.Ages = maintenance.Ages{} }
	first, _ := cleaners(t, d, forEver)
	waittest.Until(t, "a round ended", func() bool {
		return number(t, d, `SELECT count(*) FROM retention_walks WHERE kind = 'aggregates'`) == 1
	})
	if n := number(t, d, `SELECT count(*) FROM retention_walks WHERE kind LIKE '%Hashes'`); n != 0 {
		t.Errorf("%d tables are scanned without a retention", n)
	}
	seven := 7
	if _, err := d.Store.SetRetention(t.Context(), audit.Operator{Name: "ana"}, tenant.Retention{CompanyID: company, Hashes: &seven}); err != nil {
		t.Fatal(err)
	}
	second, _ := cleaners(t, d, forEver)
	waittest.Until(t, "its number is gone", func() bool { return done(t, "hash_expired", first, second) == 1 })
	if left := text(t, d, `SELECT string_agg(company_id::text, ' ') FROM recipients WHERE cpf_cnpj_hash IS NOT NULL`); left != other.String() {
		t.Errorf("numbers of %s are left, want those of %s", left, other)
	}
	waittest.Until(t, "entries and outbox were gone through", func() bool {
		return number(t, d, `SELECT count(*) FROM retention_walks WHERE kind IN ('entryHashes', 'outboxHashes')`) == 2
	})
}

func text(t *testing.T, d storetest.Database, query string, args ...any) (s string) {
	t.Helper()
	if err := d.SQL.QueryRowContext(t.Context(), query, args...).Scan(&s); err != nil {
		t.Fatal(err)
	}
	return s
}

// Uploaded files are deleted long after their mailing ended; one that cannot be deleted blocks no
// other and is retried.
func TestCleaners_Files(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	company := d.Company(t)
	root := t.TempDir()
	files, err := blob.Open(t.Context(), "file://"+root, blob.Options{})
	if err != nil {
		t.Fatal(err)
	}
	mailing := func(status string, days int) (key string, id uuid.UUID) {
		t.Helper()
		id = d.Mailing(t, company, 1, nil)
		key = fmt.Sprintf("mailings/%s/%s.csv", company, id)
		if err := files.Put(t.Context(), key, strings.NewReader("e-mail\n")); err != nil {
			t.Fatal(err)
		}
		execute(t, d, `UPDATE mailings SET status = $2, cancelled = accepted, updated_at = now() - $3 * interval '1 day' WHERE id = $1`, id, status, days)
		return key, id
	}
	var gone []string
	for range 150 { // more than a batch
		key, _ := mailing("CANCELLED", 31)
		gone = append(gone, key)
	}
	young, _ := mailing("CANCELLED", 29)
	open, _ := mailing("PAUSED", 31)
	stubborn, id := mailing("FAILED", 32)
	execute(t, d, `INSERT INTO dead_letters (id, company_id, mailing_id, target, reason, payload)
		VALUES (gen_random_uuid(), $1, $2, 'mailing.process', 'MAILING_JOB_FAILED', '{}')`, company, id) // it may be resumed
	missing, _ := mailing("COMPLETED", 31)
	if err := os.Remove(filepath.Join(root, missing)); err != nil {
		t.Fatal(err)
	}

	registry, log := cleaners(t, d, func(p *maintenance.CleanersParams) { p.Files = stubbornFiles{Bucket: files, key: stubborn} })
	waittest.Until(t, "the round ended", func() bool { return strings.Contains(log.String(), "delete: access denied") })
	waittest.Until(t, "all but one are marked", func() bool {
		return number(t, d, `SELECT count(*) FROM mailings WHERE file_deleted_at IS NOT NULL`) >= 99
	})
	for _, key := range []string{young, open, stubborn} {
		if !there(root, key) {
			t.Errorf("%s was deleted", key)
		}
	}
	if n := done(t, "mailing_file_expired", registry); n < 99 {
		t.Errorf("counted %v", n)
	}
	if number(t, d, fmt.Sprintf(`SELECT count(*) FROM mailings WHERE id = '%s' AND file_deleted_at IS NULL`, id)) != 1 {
		t.Error("the file that still exists is marked as deleted")
	}
	cleaners(t, d, func(p *maintenance.CleanersParams) { p.Files = files })
	waittest.Until(t, "all are gone", func() bool {
		for _, key := range append(gone, stubborn) {
			if there(root, key) {
				return false
			}
		}
		return number(t, d, `SELECT count(*) FROM mailings WHERE file_deleted_at IS NULL`) == 2
	})
}

// deniedFiles is a storage that does not delete some keys.
type deniedFiles struct {
	*blob.Bucket
	denied map[string]bool
}

func (f deniedFiles) Delete(ctx context.Context, key string) error {
	if f.denied[key] {
		return errors.New("delete: access denied")
	}
	return f.Bucket.Delete(ctx, key)
}

// More files than a batch that cannot be deleted do not block those of mailings that ended later, and the next round tries them
// again.
func TestCleaners_FilesBehindUndeletable(t *testing.T) {
	t.Parallel()
	const undeletable, deletable = 120, 90
	d := storetest.New(t)
	company := d.Company(t)
	files, err := blob.Open(t.Context(), "file://"+t.TempDir(), blob.Options{})
	if err != nil {
		t.Fatal(err)
	}
	denied := map[string]bool{}
	for i := range undeletable + deletable {
		id, days := d.Mailing(t, company, 1, nil), 31
		if i < undeletable {
			denied[fmt.Sprintf("mailings/%s/%s.csv", company, id)], days = true, 32
		}
		execute(t, d, `UPDATE mailings SET status = 'CANCELLED', cancelled = accepted, updated_at = now() - $2 * interval '1 day' WHERE id = $1`, id, days)
	}
	registry, log := cleaners(t, d, func(p *maintenance.CleanersParams) { p.Files = deniedFiles{files, denied} })
	waittest.Until(t, "the round ended", func() bool { return strings.Contains(log.String(), "clean mailing files") })
	if text := log.String(); !strings.Contains(text, "120 files cannot be deleted") || !strings.Contains(text, "delete: access denied") {
		t.Errorf("logged: %s", text)
	}
	if n := done(t, "mailing_file_expired", registry); n != deletable {
		t.Errorf("%d files deleted, want %d", n, deletable)
	}
	if n := number(t, d, `SELECT count(*) FROM mailings WHERE file_deleted_at IS NULL`); n != undeletable {
		t.Errorf("%d files are not marked, want %d", n, undeletable)
	}
	cleaners(t, d, func(p *maintenance.CleanersParams) { p.Files = files })
	waittest.Until(t, "the next round deletes all", func() bool {
		return number(t, d, `SELECT count(*) FROM mailings WHERE file_deleted_at IS NULL`) == 0
	})
}

// partitions is a database whose answers the test sets.
type partitions struct {
	make    func(retention.Log) (string, error)
	drop    func(retention.Log, time.Duration) (retention.DroppedPartition, error)
	missing func(context.Context) ([]retention.MissingPartitions, error)
	overdue func(context.Context, retention.Log, time.Duration) (int, error)
}

func (p partitions) MakeLogPartition(_ context.Context, log retention.Log, _ int) (string, error) {
	return p.make(log)
}

func (p partitions) CheckClock(context.Context, func() time.Time) error { return nil }

func (p partitions) MissingLogPartitions(ctx context.Context) ([]retention.MissingPartitions, error) {
	if p.missing == nil {
		return nil, nil
	}
	return p.missing(ctx)
}

func (p partitions) OverdueLogPartitions(ctx context.Context, log retention.Log, age time.Duration) (int, error) {
	if p.overdue == nil {
		return 0, nil
	}
	return p.overdue(ctx, log, age)
}

func (p partitions) DropLogPartition(_ context.Context, log retention.Log, age time.Duration) (retention.DroppedPartition, error) {
	return p.drop(log, age)
}

func TestPartitioner(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	for _, log := range []string{"email_logs", "email_events"} {
		execute(t, d, `CREATE TABLE `+log+`_old PARTITION OF `+log+` FOR VALUES FROM ('01000000-0000-0000-0000-000000000000') TO ('01800000-0000-0000-0000-000000000000')`)
	}
	registries := []*prometheus.Registry{prometheus.NewRegistry(), prometheus.NewRegistry()}
	for _, registry := range registries { // two dispatchers
		run(t, maintenance.NewPartitioner(maintenance.PartitionerParams{
			Log: slog.New(slog.DiscardHandler), Store: retention.New(d.Store.DB()), Actions: maintenance.NewActions(prometheus.NewRegistry()), Registry: registry, Logs: 365 * day,
		}))
	}
	waittest.Until(t, "this month and three more, and the old one gone", func() bool {
		return number(t, d, `SELECT count(*) FROM log_partitions WHERE log = 'email_logs'`) == 4
	})
	waittest.Until(t, "the events of old are kept for ever", func() bool {
		return number(t, d, `SELECT count(*) FROM log_partitions WHERE log = 'email_events'`) == 5
	})
	for _, registry := range registries {
		waittest.Until(t, "no month lacks a partition", func() bool {
			return partitionGauge(t, registry, "missing", "email_logs") == 0 && partitionGauge(t, registry, "missing", "email_events") == 0
		})
	}
}

// A clock of Postgres that is far ahead of the dispatcher's must not delete what has not expired.
func TestPartitioner_ClockAhead(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	execute(t, d, `CREATE TABLE email_logs_old PARTITION OF email_logs FOR VALUES FROM ('01000000-0000-0000-0000-000000000000') TO ('01800000-0000-0000-0000-000000000000')`)
	exists := func() bool {
		return number(t, d, `SELECT count(*) FROM log_partitions WHERE name = 'email_logs_old'`) == 1
	}
	var log logtest.Buffer
	run(t, maintenance.NewPartitioner(maintenance.PartitionerParams{
		Log: slog.New(slog.NewTextHandler(&log, nil)), Store: retention.New(d.Store.DB()), Actions: maintenance.NewActions(prometheus.NewRegistry()), Registry: prometheus.NewRegistry(), Logs: 365 * day,
		Now: func() time.Time { return time.Now().Add(-2 * time.Hour) },
	}))
	waittest.Until(t, "a round has ended", func() bool { return !exists() || strings.Contains(log.String(), "ahead of this machine's") })
	if !exists() {
		t.Error("the partition was dropped")
	}
}

// The cleaners too delete nothing then.
func TestCleaners_ClockAhead(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	execute(t, d, `INSERT INTO operator_audit (operator, action, at) VALUES ('ana', 'company.create', now() - interval '3 years')`)
	kept := func() bool { return number(t, d, `SELECT count(*) FROM operator_audit`) == 1 }
	_, log := cleaners(t, d, func(p *maintenance.CleanersParams) {
		p.Now = func() time.Time { return time.Now().Add(-2 * time.Hour) }
	})
	waittest.Until(t, "a round has ended", func() bool {
		return !kept() || strings.Contains(log.String(), `clean audit rows: the clock of Postgres is 2h0m0s ahead of this machine's`)
	})
	if !kept() {
		t.Error("the audit entry was deleted")
	}
}

// countedArchive counts calls.
type countedArchive struct{ cleaned, trimmed atomic.Int64 }

func (a *countedArchive) CleanArchive(context.Context, string, time.Duration) (int, error) {
	a.cleaned.Add(1)
	return 0, nil
}

func (a *countedArchive) TrimArchive(context.Context, string, int) (int, error) {
	a.trimmed.Add(1)
	return 0, nil
}

// Postgres's clock does not affect Redis's archive, which would otherwise fill Redis.
func TestCleaners_ClockAheadArchive(t *testing.T) {
	t.Parallel()
	d, archive := storetest.New(t), &countedArchive{}
	cleaners(t, d, func(p *maintenance.CleanersParams) {
		p.Archive = archive
		p.Now = func() time.Time { return time.Now().Add(-2 * time.Hour) }
	})
	queues := int64(len(email.Queues()))
	waittest.Until(t, "the archive of each queue is trimmed", func() bool { return archive.trimmed.Load() >= queues && archive.cleaned.Load() >= queues })
}

// partitionGauge is the value of a metric of one log.
func partitionGauge(t *testing.T, registry *prometheus.Registry, name, log string) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if family.GetName() == "log_partitions_"+name && metric.GetLabel()[0].GetValue() == log {
				return metric.GetGauge().GetValue()
			}
		}
	}
	t.Fatal("there is no such metric")
	return 0
}

// Partitions that are missing although the loop runs show in the metric that the alert
// LogPartitionsMissing uses.
func TestPartitioner_Missing(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	next := number(t, d, `SELECT to_char(date_trunc('month', now() AT TIME ZONE 'UTC') + interval '1 month', 'YYYYMM')::int`)
	execute(t, d, fmt.Sprintf(`DROP TABLE email_logs_%d_%02d`, next/100, next%100))
	registry, log := prometheus.NewRegistry(), &logtest.Buffer{}
	run(t, maintenance.NewPartitioner(maintenance.PartitionerParams{
		Log: slog.New(slog.NewTextHandler(log, nil)), Actions: maintenance.NewActions(prometheus.NewRegistry()), Registry: registry,
		Store: partitions{
			make:    func(retention.Log) (string, error) { return "", fmt.Errorf("make: %w", retention.ErrInUse) },
			missing: retention.New(d.Store.DB()).MissingLogPartitions,
		},
	}))
	waittest.Until(t, "the round has made none", func() bool { return strings.Count(log.String(), "postponed") == 2 })
	waittest.Until(t, "the next month lacks one", func() bool {
		return partitionGauge(t, registry, "missing", "email_logs") == 1 && partitionGauge(t, registry, "missing", "email_events") == 0
	})
}

// Expired partitions that could not be dropped show in the metric that the alert
// LogPartitionsOverdue uses.
func TestPartitioner_Overdue(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	for _, log := range []string{"email_logs", "email_events"} {
		execute(t, d, `CREATE TABLE `+log+`_old PARTITION OF `+log+` FOR VALUES FROM ('01000000-0000-0000-0000-000000000000') TO ('01800000-0000-0000-0000-000000000000')`)
	}
	registry := prometheus.NewRegistry()
	run(t, maintenance.NewPartitioner(maintenance.PartitionerParams{
		Log: slog.New(slog.DiscardHandler), Actions: maintenance.NewActions(prometheus.NewRegistry()), Registry: registry, Logs: 365 * day,
		Store: partitions{
			make: func(retention.Log) (string, error) { return "", nil },
			drop: func(retention.Log, time.Duration) (retention.DroppedPartition, error) {
				return retention.DroppedPartition{Name: "email_logs_old"}, nil
			},
			overdue: retention.New(d.Store.DB()).OverdueLogPartitions,
		},
	}))
	waittest.Until(t, "one of the logs is overdue, and the events are kept for ever", func() bool {
		return partitionGauge(t, registry, "overdue", "email_logs") == 1 && partitionGauge(t, registry, "overdue", "email_events") == 0
	})
	// The longest retention of a company counts too.
	company := d.Company(t)
	execute(t, d, `INSERT INTO company_retention (company_id, logs_days) VALUES ('`+company.String()+`', 3650)`)
	if n, err := retention.New(d.Store.DB()).OverdueLogPartitions(t.Context(), retention.EmailLogs, 365*day); n != 0 || err != nil {
		t.Error(n, err)
	}
}

// A table in use is not an error, and the other log is still processed.
func TestPartitioner_Postponed(t *testing.T) {
	t.Parallel()
	registry, log := prometheus.NewRegistry(), &logtest.Buffer{}
	run(t, maintenance.NewPartitioner(maintenance.PartitionerParams{
		Log: slog.New(slog.NewTextHandler(log, nil)), Actions: maintenance.NewActions(registry), Registry: registry, Logs: day, Events: day,
		Store: partitions{
			make: func(retention.Log) (string, error) { return "", fmt.Errorf("make: %w", retention.ErrInUse) },
			drop: func(log retention.Log, _ time.Duration) (retention.DroppedPartition, error) {
				if log == retention.EmailEvents {
					return retention.DroppedPartition{}, errors.New("broken")
				}
				return retention.DroppedPartition{Name: "email_logs_2020_01"}, nil
			},
		},
	}))
	waittest.Until(t, "the round ended", func() bool { return strings.Contains(log.String(), "round failed") })
	if text := log.String(); strings.Count(text, "postponed") != 2 || !strings.Contains(text, "still in the outbox") || !strings.Contains(text, "broken") {
		t.Errorf("logged: %s", text)
	}
	if n := done(t, "partition_postponed", registry); n != 3 {
		t.Errorf("counted %v", n)
	}
}

// The round after one that met a table in use begins after a minute, also if it was in use for every step of the round, and if
// the round failed too.
func TestPartitioner_RetriesSoon(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var rounds atomic.Int64
		run(t, maintenance.NewPartitioner(maintenance.PartitionerParams{
			Log: slog.New(slog.DiscardHandler), Actions: maintenance.NewActions(prometheus.NewRegistry()), Registry: prometheus.NewRegistry(),
			Logs: day, Events: day,
			Store: partitions{
				make: func(retention.Log) (string, error) { return "", fmt.Errorf("make: %w", retention.ErrInUse) },
				drop: func(retention.Log, time.Duration) (retention.DroppedPartition, error) {
					<-time.After(200 * time.Millisecond)
					return retention.DroppedPartition{}, fmt.Errorf("drop: %w", retention.ErrInUse)
				},
				missing: func(context.Context) ([]retention.MissingPartitions, error) {
					if rounds.Add(1) <= 5 {
						return nil, errors.New("broken")
					}
					return nil, nil
				},
			},
		}))
		<-time.After(20*time.Minute + 30*time.Second)
		if n := rounds.Load(); n < 20 || n > 21 {
			t.Errorf("%d rounds in 20 minutes", n)
		}
	})
}
