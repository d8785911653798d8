// Package peer runs a reference for the gateway in its usual configuration: River, a job queue in
// Postgres, with its pgx driver. Only the benchmark uses it.
package peer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"golang.org/x/sync/errgroup"

	"email-gateway/shared/service"
)

// The fastest settings of River found on two cores; its defaults (100 workers, a fetch every 100
// ms) complete 1,000 jobs per second.
const (
	maxWorkers    = 1000
	fetchCooldown = 10 * time.Millisecond
)

// Inserters is the number of concurrent inserts, each in a transaction of its own.
const Inserters = 64

// otherConns are the connections that River itself needs: its listener, its leader, fetches and
// completions.
const otherConns = 16

// River is a River installation in a database of its own.
type River struct {
	pool *pgxpool.Pool
}

// Open migrates the database at the postgres:// URL to River's newest schema. Nothing else may use
// that database.
func Open(ctx context.Context, url string) (*River, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("open river: %w", err)
	}
	cfg.MaxConns = Inserters + otherConns
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("open river: %w", err)
	}
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
	if err == nil {
		_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	}
	if err != nil {
		pool.Close()
		return nil, fmt.Errorf("migrate river: %w", err)
	}
	return &River{pool: pool}, nil
}

// Close closes the connections.
func (r *River) Close() { r.pool.Close() }

// Email are a job's arguments: the body of a request to the gateway.
type Email struct{ json.RawMessage }

// Kind is River's name for the job.
func (Email) Kind() string { return "email" }

// noop is a worker that does nothing.
type noop struct {
	river.WorkerDefaults[Email]
	worked *atomic.Int64
}

// Work counts the job, so that the database is not queried while jobs are left.
func (n *noop) Work(context.Context, *river.Job[Email]) error {
	n.worked.Add(1)
	return nil
}

// Run inserts the jobs, Inserters at a time, while a client processes them, and returns the time
// from the first insert until Postgres has all of them as completed. It first removes the jobs of
// an earlier run.
func (r *River) Run(ctx context.Context, jobs []Email) (time.Duration, error) {
	if _, err := r.pool.Exec(ctx, `TRUNCATE river_job`); err != nil {
		return 0, fmt.Errorf("empty river: %w", err)
	}
	worked := new(atomic.Int64)
	workers := river.NewWorkers()
	river.AddWorker(workers, &noop{worked: worked})
	client, err := river.NewClient(riverpgxv5.New(r.pool), &river.Config{
		Queues:  map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: maxWorkers, FetchCooldown: fetchCooldown}},
		Workers: workers,
		Logger:  slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return 0, fmt.Errorf("make river client: %w", err)
	}
	if err := client.Start(ctx); err != nil {
		return 0, fmt.Errorf("start river: %w", err)
	}
	start := time.Now()
	err = r.insert(ctx, client, jobs)
	if err == nil {
		err = r.awaitCompleted(ctx, worked, len(jobs))
	}
	took := time.Since(start)
	if stopping := client.Stop(context.WithoutCancel(ctx)); stopping != nil {
		err = errors.Join(err, fmt.Errorf("stop river: %w", stopping))
	}
	return took, err
}

// insert inserts each job in a transaction of its own.
func (r *River) insert(ctx context.Context, client *river.Client[pgx.Tx], jobs []Email) error {
	var next atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	for range Inserters {
		group.Go(func() error {
			for {
				n := int(next.Add(1)) - 1
				if n >= len(jobs) {
					return nil
				}
				err := pgx.BeginFunc(ctx, r.pool, func(tx pgx.Tx) error {
					_, err := client.InsertTx(ctx, tx, jobs[n], nil)
					return err
				})
				if err != nil {
					return fmt.Errorf("insert job: %w", err)
				}
			}
		})
	}
	return group.Wait()
}

// completionPoll is the polling interval for the end: a fraction of a per cent of a run.
const completionPoll = 5 * time.Millisecond

// awaitCompleted waits until no job is left, by the index of River's own fetch.
func (r *River) awaitCompleted(ctx context.Context, worked *atomic.Int64, jobs int) error {
	for worked.Load() < int64(jobs) {
		if err := service.Pause(ctx, completionPoll); err != nil {
			return err
		}
	}
	for open := true; open; {
		err := r.pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM river_job WHERE state IN ('available', 'pending', 'retryable', 'running', 'scheduled'))`).Scan(&open)
		if err != nil {
			return fmt.Errorf("query unfinished jobs: %w", err)
		}
		if open {
			if err := service.Pause(ctx, completionPoll); err != nil {
				return err
			}
		}
	}
	return nil
}

// Completed returns the number of completed jobs of the last run.
func (r *River) Completed(ctx context.Context) (int, error) {
	var n int
	if err := r.pool.QueryRow(ctx, `SELECT count(*) FROM river_job WHERE state = 'completed'`).Scan(&n); err != nil {
		return 0, fmt.Errorf("count completed jobs: %w", err)
	}
	return n, nil
}
