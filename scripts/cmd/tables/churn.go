package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/lib/pq"

	"email-gateway/shared/service"
	"email-gateway/shared/store"
)

// churn lives many lives of an email in email_outbox: accepted, put on a queue, claimed,
// sent, purged. The table soon has the size at which it stays; what is of interest is
// what it looks like after millions of them.
type churn struct {
	settings string // storage parameters of the table; "" = those of the migrations, "none" = Postgres's
	lives    int    // in thousands
	every    int    // thousands of lives between two lines of the report
	standing int    // rows that were sent and wait for their purge, in thousands
	backlog  int    // emails that wait for their turn meanwhile
	rate     int    // lives per second at most; 0 = as many as there is time for
}

// Each statement is one commit of a group, as the programs have it. The ids of a group
// are in the order of time; the purge goes along them.
const (
	acceptGroupSQL = `
INSERT INTO email_outbox (id, company_id, lane_id, request_id, payload, sender, html, html_sha256, checker_version, expires_at)
SELECT id, $2, $3, 'req-' || id, jsonb_build_object('to', 'ana@example.com', 'subject', 'Sua fatura', 'htmlRef', id, 'companyId', $2::uuid, 'outboxId', id,
       'recipient', jsonb_build_object('externalId', 'CUST-1', 'email', 'ana@example.com')), 'a@acme.example', repeat('Olá. ', 40), sha256('a'), 1, now() + interval '1 day'
FROM unnest($1::uuid[]) id`
	enqueueGroupSQL = `UPDATE email_outbox SET status = 'ENQUEUED', enqueued_at = now() WHERE id = ANY ($1::uuid[])`
	claimGroupSQL   = `
UPDATE email_outbox SET status = 'PROCESSING', attempts = attempts + 1, claim_token = gen_random_uuid(), lease_until = now() + interval '1 min' WHERE id = ANY ($1::uuid[])`
	sendGroupSQL  = `UPDATE email_outbox SET status = 'SENT', lease_until = NULL, processed_at = now() WHERE id = ANY ($1::uuid[])`
	purgeGroupSQL = `DELETE FROM email_outbox WHERE id = ANY ($1::uuid[])`
)

// group is how many emails one commit moves, workers how many of these are under way.
const (
	group   = 256
	workers = 4
)

func (c *churn) measure(ctx context.Context, server string, out io.Writer) (err error) {
	d, err := c.open(ctx, server)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.drop()) }()
	lane, err := c.lane(ctx, d)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%7s %9s %9s %7s %8s %8s %8s %8s %8s %6s %8s %9s %9s\n",
		"lives", "rows", "dead", "heap", "pkey", "claim", "open", "company", "toast", "HOT", "vacuums", "lives/s", "turn (ms)")
	if err := c.report(ctx, d, out, 0, 0, lane); err != nil {
		return err
	}
	var standing [][]uuid.UUID
	for done := 0; done < c.lives; done += c.every {
		begun := time.Now()
		if standing, err = c.live(ctx, d, lane, min(c.every, c.lives-done)*1000/group, standing); err != nil {
			return err
		}
		if err := c.report(ctx, d, out, done+c.every, float64(c.every*1000)/time.Since(begun).Seconds(), lane); err != nil {
			return err
		}
	}
	return nil
}

func (c *churn) open(ctx context.Context, server string) (*database, error) {
	d, err := newDatabase(ctx, server)
	if err != nil {
		return nil, err
	}
	statements := []string{"ALTER DATABASE " + d.name + " SET synchronous_commit = off"} // the disk's speed is not the question
	if c.settings != "" {
		statements = append(statements, "ALTER TABLE email_outbox RESET (fillfactor, autovacuum_vacuum_scale_factor, autovacuum_vacuum_cost_delay)")
	}
	if c.settings != "" && c.settings != "none" {
		statements = append(statements, "ALTER TABLE email_outbox SET ("+c.settings+")")
	}
	if err := d.exec(ctx, statements...); err != nil {
		return nil, errors.Join(err, d.drop())
	}
	// Connections from here on have the setting.
	d.sql.SetMaxIdleConns(0)
	d.sql.SetMaxIdleConns(workers)
	return d, nil
}

// lane writes the emails that wait, and returns their lane, in which the others live too.
func (c *churn) lane(ctx context.Context, d *database) (int64, error) {
	var lanes []int64
	rows, err := d.sql.QueryContext(ctx, `SELECT id FROM dispatch_lanes WHERE queue LIKE 'email:send%' ORDER BY id`)
	if err != nil {
		return 0, fmt.Errorf("list lanes: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var lane int64
		if err := rows.Scan(&lane); err != nil {
			return 0, fmt.Errorf("list lanes: %w", err)
		}
		lanes = append(lanes, lane)
	}
	if err := rows.Err(); err != nil {
		return 0, fmt.Errorf("list lanes: %w", err)
	}
	for range c.backlog / group {
		if _, err := d.sql.ExecContext(ctx, acceptGroupSQL, pq.Array(newIDs()), d.company, lanes[0]); err != nil {
			return 0, fmt.Errorf("write the backlog: %w", err)
		}
	}
	return lanes[0], nil
}

func newIDs() []string {
	ids := make([]string, group)
	for i := range ids {
		ids[i] = uuid.Must(uuid.NewV7()).String()
	}
	return ids
}

// live lives the lives of so many groups. standing are the groups that were sent and are
// not purged; the oldest go when there are more than are to be kept.
func (c *churn) live(ctx context.Context, d *database, lane int64, groups int, standing [][]uuid.UUID) ([][]uuid.UUID, error) {
	most, begun := c.standing*1000/group, time.Now()
	var (
		next    atomic.Int64
		mu      sync.Mutex
		failed  error
		working sync.WaitGroup
	)
	for range workers {
		working.Go(func() {
			for {
				n := next.Add(1)
				if n > int64(groups) || c.awaitTurn(ctx, begun, n) != nil {
					return
				}
				sent, err := oneGroup(ctx, d.sql, d.company, lane)
				mu.Lock()
				var old []uuid.UUID
				if standing = append(standing, sent); len(standing) > most {
					old, standing = standing[0], standing[1:]
				}
				mu.Unlock()
				if err == nil && old != nil {
					_, err = d.sql.ExecContext(ctx, purgeGroupSQL, pq.Array(texts(old)))
				}
				if err != nil {
					mu.Lock()
					failed = err
					mu.Unlock()
					return
				}
			}
		})
	}
	working.Wait()
	return standing, errors.Join(failed, ctx.Err())
}

// awaitTurn waits until the n-th group may begin.
func (c *churn) awaitTurn(ctx context.Context, begun time.Time, n int64) error {
	if c.rate == 0 {
		return ctx.Err()
	}
	return service.Pause(ctx, time.Until(begun.Add(time.Duration(n)*group*time.Second/time.Duration(c.rate))))
}

func oneGroup(ctx context.Context, db *sql.DB, company uuid.UUID, lane int64) ([]uuid.UUID, error) {
	words := newIDs()
	ids := make([]uuid.UUID, len(words))
	for i, word := range words {
		ids[i] = uuid.MustParse(word)
	}
	if _, err := db.ExecContext(ctx, acceptGroupSQL, pq.Array(words), company, lane); err != nil {
		return nil, fmt.Errorf("accept: %w", err)
	}
	for _, statement := range []string{enqueueGroupSQL, claimGroupSQL, sendGroupSQL} {
		if _, err := db.ExecContext(ctx, statement, pq.Array(words)); err != nil {
			return nil, fmt.Errorf("move: %w", err)
		}
	}
	return ids, nil
}

func texts(ids []uuid.UUID) []string {
	words := make([]string, len(ids))
	for i, id := range ids {
		words[i] = id.String()
	}
	return words
}

const sizesSQL = `
SELECT n_live_tup, n_dead_tup, pg_relation_size(relid) / 1e6, pg_relation_size('email_outbox_pkey') / 1e6, pg_relation_size('email_outbox_lane_claim') / 1e6,
       pg_relation_size('email_outbox_open') / 1e6, pg_relation_size('email_outbox_company') / 1e6,
       (SELECT pg_relation_size(reltoastrelid) FROM pg_class WHERE oid = relid) / 1e6,
       coalesce(100.0 * n_tup_hot_upd / nullif(n_tup_upd, 0), 0), autovacuum_count
FROM pg_stat_user_tables WHERE relname = 'email_outbox'`

func (c *churn) report(ctx context.Context, d *database, out io.Writer, lives int, rate float64, lane int64) error {
	// What a dispatcher asks of the table in each round. It takes the emails that wait, and
	// releases them.
	var turns []float64
	for range 25 {
		begun := time.Now()
		if _, err := d.store.LiveLanes(ctx); err != nil {
			return err
		}
		taken, err := d.store.TakeDue(ctx, store.Slot{ID: uuid.New()}, []int64{lane}, group)
		if err != nil {
			return err
		}
		rows := make([]store.Release, len(taken.Rows))
		for i, row := range taken.Rows {
			rows[i].ID = row.ID
		}
		if _, err := d.store.Release(ctx, taken.TakenAt, rows); err != nil {
			return err
		}
		turns = append(turns, float64(time.Since(begun).Microseconds())/1000)
	}
	slices.Sort(turns)
	var rows, dead, vacuums int
	var heap, key, claim, open, company, toast, hot float64
	if err := d.sql.QueryRowContext(ctx, sizesSQL).Scan(&rows, &dead, &heap, &key, &claim, &open, &company, &toast, &hot, &vacuums); err != nil {
		return fmt.Errorf("look at sizes: %w", err)
	}
	_, err := fmt.Fprintf(out, "%6dk %9d %9d %7.0f %8.1f %8.1f %8.1f %8.1f %8.0f %5.0f%% %8d %9.0f %9.2f\n",
		lives, rows, dead, heap, key, claim, open, company, toast, hot, vacuums, rate, turns[len(turns)/2])
	return err
}
