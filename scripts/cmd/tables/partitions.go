package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/htmlcheck"
	"email-gateway/shared/store"
)

// months compares email_logs and email_events in one piece with the same in months.
type months struct {
	months, rows, rounds int
	turn                 time.Duration
	only                 string // the jobs whose names have it
}

// flattenSQL makes a table of one piece again out of its partitions; the names of its
// indexes do not matter here.
const flattenSQL = `
CREATE TABLE flat (LIKE %[1]s INCLUDING ALL) WITH (fillfactor = %[2]d);
INSERT INTO flat SELECT * FROM %[1]s;
DROP VIEW IF EXISTS log_partitions;
DROP TABLE %[1]s;
ALTER TABLE flat RENAME TO %[1]s`

// pastSQL makes the partitions of the months before this one.
const pastSQL = `
DO $$
DECLARE month timestamp; log text;
BEGIN
    FOR n IN 1..%[1]d LOOP
        month := date_trunc('month', now() AT TIME ZONE 'UTC') - n * interval '1 month';
        FOREACH log IN ARRAY '{email_logs,email_events}'::text[] LOOP
            EXECUTE format('CREATE TABLE %%I PARTITION OF %%I FOR VALUES FROM (%%L) TO (%%L)', log || to_char(month, '"_"YYYY_MM'), log,
                first_id_at(month AT TIME ZONE 'UTC'), first_id_at((month + interval '1 month') AT TIME ZONE 'UTC'));
        END LOOP;
    END LOOP;
END
$$`

// historySQL writes emails of the past, each with its log and its four events, evenly
// over the months.
const historySQL = `
WITH email AS (
    SELECT n, (left(first_id_at(now() - n * (%[1]d * interval '30 days' / %[2]d))::text, 13) || '-7' || substr(md5(n::text), 1, 3) || '-8' || substr(md5(n::text), 4, 3)
               || '-' || substr(md5(n::text), 7, 12))::uuid AS id,
           now() - n * (%[1]d * interval '30 days' / %[2]d) AS at
    FROM generate_series(1, %[2]d) n
), logged AS (
    INSERT INTO email_logs (outbox_id, company_id, recipient, subject, status, attempts, request_id, external_id, expires_at, created_at, sent_at, event_seq, last_event)
    SELECT id, '%[3]s', 'user' || n %% 10000 || '@example.com', 'Sua fatura', 'SENT', 1, 'req-' || n, 'CUST-' || n %% 10000, at + interval '1 day', at, at, 4, 'SENT'
    FROM email
)
INSERT INTO email_events (email_log_id, seq, previous, type, created_at)
SELECT id, e.seq, e.previous, e.type, at
FROM email, (VALUES (1, NULL, 'RECEIVED'), (2, 'RECEIVED', 'VALIDATED'), (3, 'VALIDATED', 'SENT_ATTEMPT'), (4, 'SENT_ATTEMPT', 'SENT')) e(seq, previous, type)`

func (m *months) measure(ctx context.Context, server string, out io.Writer) (err error) {
	shapes := map[string]*database{}
	names := []string{"one piece", "months"}
	for _, name := range names {
		d, err := newDatabase(ctx, server)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, d.drop()) }()
		shapes[name] = d
		shape := []string{fmt.Sprintf(pastSQL, m.months)}
		if name == "one piece" {
			shape = []string{fmt.Sprintf(flattenSQL, "email_logs", 80), fmt.Sprintf(flattenSQL, "email_events", 100)}
		}
		shape = append(shape, fmt.Sprintf(historySQL, m.months, m.months*m.rows, d.company), "VACUUM ANALYZE", "CHECKPOINT")
		if err := d.exec(ctx, shape...); err != nil {
			return err
		}
	}
	fmt.Fprintf(out, "%d months of %d emails each; %d turns of %s for each shape; milliseconds for a read, emails per second for a write\n", m.months, m.rows, m.rounds, m.turn)
	fmt.Fprintf(out, "%-44s %12s %12s %8s\n", "", names[0], names[1], "ratio")
	for _, job := range jobs {
		if !strings.Contains(job.name, m.only) {
			continue
		}
		seen := map[string][]float64{}
		for round := range m.rounds + 1 {
			for _, name := range names {
				value, err := job.run(ctx, shapes[name], m.turn)
				if err != nil {
					return fmt.Errorf("%s, %s: %w", job.name, name, err)
				}
				if round > 0 { // the first one warms up
					seen[name] = append(seen[name], value)
				}
			}
		}
		a, b := median(seen[names[0]]), median(seen[names[1]])
		fmt.Fprintf(out, "%-44s %12.3f %12.3f %8.3f\n", job.name, a, b, b/a)
	}
	return nil
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// job is one thing to measure.
type job struct {
	name string
	run  func(ctx context.Context, d *database, turn time.Duration) (float64, error)
}

var jobs = []job{
	{"claim and end, one at a time", writes(1)},
	{"claim and end, 10 at a time", writes(10)},
	{"claim and end, 256 at a time", writes(256)},
	{"GET by id", reads(func(ctx context.Context, d *database, id uuid.UUID) error {
		_, err := d.store.FindEmail(ctx, d.company, id)
		return err
	})},
	{"timeline", reads(func(ctx context.Context, d *database, id uuid.UUID) error {
		_, err := d.store.Timeline(ctx, id)
		return err
	})},
	{"list, newest 50", lists(store.EmailFilter{Limit: 50})},
	{"list by recipient", lists(store.EmailFilter{Limit: 50, Recipient: "user77@example.com"})},
	{"list by external id", lists(store.EmailFilter{Limit: 50, ExternalID: "CUST-77"})},
	{"list by request id", lists(store.EmailFilter{Limit: 50, RequestID: "req-77"})},
}

// writes measures the two writes of an email, which are what the pipeline does: so many
// emails are in work at the same time, and groups form as they do there.
func writes(atOnce int) func(context.Context, *database, time.Duration) (float64, error) {
	return func(ctx context.Context, d *database, turn time.Duration) (float64, error) {
		const most = 60000 // per second; more is not to be expected
		ids, err := accept(ctx, d, min(most*int(turn/time.Millisecond)/1000, 2000*atOnce))
		if err != nil {
			return 0, err
		}
		advancer := d.store.NewAdvancer()
		defer advancer.Close()
		var (
			working sync.WaitGroup
			mu      sync.Mutex
			done    int
			failed  error
		)
		begun := time.Now()
		for worker := range atOnce {
			working.Go(func() {
				for n := worker; n < len(ids) && time.Since(begun) < turn; n += atOnce {
					err := send(ctx, advancer, ids[n])
					mu.Lock()
					done++
					if failed == nil {
						failed = err
					}
					mu.Unlock()
					if err != nil {
						return
					}
				}
			})
		}
		working.Wait()
		took := time.Since(begun)
		return float64(done) / took.Seconds(), failed
	}
}

// accept writes emails in groups and returns their ids.
func accept(ctx context.Context, d *database, n int) ([]uuid.UUID, error) {
	accepter := d.store.NewAccepter()
	defer accepter.Close()
	html := "<p>Olá, sua fatura chegou.</p>"
	sum := sha256.Sum256([]byte(html))
	ids := make([]uuid.UUID, n)
	errs := make([]error, n)
	var accepting sync.WaitGroup
	const atOnce = 256
	for worker := range atOnce {
		accepting.Go(func() {
			for i := worker; i < n; i += atOnce {
				ids[i] = uuid.Must(uuid.NewV7())
				id := ids[i].String()
				errs[i] = accepter.Accept(ctx, store.NewEmail{
					ID: ids[i], CompanyID: d.company, RequestID: "req-" + id,
					Job: email.SendJob{
						OutboxID: id, CompanyID: d.company.String(), RequestID: "req-" + id, To: "ana@example.com", Subject: "Sua fatura", HTMLRef: id,
						Recipient: email.JobRecipient{ExternalID: "CUST-1", Email: "ana@example.com"},
					},
					Sender: "a@acme.example", HTML: html, HTMLSHA256: sum[:], CheckerVersion: int(htmlcheck.Version), Priority: email.DefaultPriority,
					Delivery: email.AtLeastOnce, TTL: 24 * time.Hour, CreatedAt: time.Now().UTC(),
				})
			}
		})
	}
	accepting.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return ids, nil
}

// send writes what a worker writes of an email that the provider takes at once.
func send(ctx context.Context, advancer *store.Advancer, id uuid.UUID) error {
	token, now := uuid.New(), time.Now().UTC()
	for _, t := range []store.Transition{
		{ID: id, Guard: store.GuardClaim, Token: token, Status: email.Processing, AddAttempts: 1, Events: []email.Event{
			{Type: email.EventReceived, At: now},
			{Type: email.EventValidated, At: now},
			{Type: email.EventSentAttempt, At: now, Metadata: map[string]any{"attemptId": token}},
		}},
		{
			ID: id, Guard: store.GuardAttempt, Token: token, Status: email.Sent, SESMessageID: token.String(), Duration: time.Millisecond,
			Events: []email.Event{{Type: email.EventSent, At: now}},
		},
	} {
		moved, err := advancer.Advance(ctx, t)
		if err != nil {
			return err
		}
		if !moved.Applied {
			return fmt.Errorf("%s was not applied", t.Guard)
		}
	}
	return nil
}

// reads measures a read of emails here and there in time, in milliseconds.
func reads(read func(context.Context, *database, uuid.UUID) error) func(context.Context, *database, time.Duration) (float64, error) {
	return func(ctx context.Context, d *database, turn time.Duration) (float64, error) {
		var ids []uuid.UUID
		rows, err := d.sql.QueryContext(ctx, `SELECT outbox_id FROM email_logs TABLESAMPLE SYSTEM (1) LIMIT 5000`)
		if err != nil {
			return 0, fmt.Errorf("choose emails: %w", err)
		}
		defer rows.Close()
		for rows.Next() {
			var id uuid.UUID
			if err := rows.Scan(&id); err != nil {
				return 0, fmt.Errorf("choose emails: %w", err)
			}
			ids = append(ids, id)
		}
		if err := rows.Err(); err != nil || len(ids) == 0 {
			return 0, fmt.Errorf("choose emails: %d found, %w", len(ids), err)
		}
		return repeatedly(turn, func() error { return read(ctx, d, ids[rand.IntN(len(ids))]) })
	}
}

func lists(f store.EmailFilter) func(context.Context, *database, time.Duration) (float64, error) {
	return func(ctx context.Context, d *database, turn time.Duration) (float64, error) {
		return repeatedly(turn, func() error {
			_, err := d.store.ListEmails(ctx, d.company, f)
			return err
		})
	}
}

// repeatedly does something for the length of half a turn and says how many milliseconds
// one takes.
func repeatedly(turn time.Duration, do func() error) (float64, error) {
	begun, n := time.Now(), 0
	for time.Since(begun) < turn/2 {
		if err := do(); err != nil {
			return 0, err
		}
		n++
	}
	return float64(time.Since(begun).Microseconds()) / 1000 / float64(n), nil
}
