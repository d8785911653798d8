// Package peer runs what the gateway is compared with, the way its own users run it:
// River, a queue of jobs in Postgres, with its pgx driver. It is used by the bench only.
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

// What River was found to be fastest with on two cores; its defaults (100 workers, a
// fetch each 100 ms) end 1,000 jobs per second.
const (
	maxWorkers    = 1000
	fetchCooldown = 10 * time.Millisecond
)

// Inserters are how many jobs are inserted at once, each in a transaction of its own.
const Inserters = 64

// otherConns is what River itself needs beside the inserters: its listener, its leader,
// fetches and completions.
const otherConns = 16

// River is a River in a database of its own.
type River struct {
	pool *pgxpool.Pool
}

// Open migrates the database at the postgres:// URL to River's newest shape. Nothing else
// may live in that database.
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

// Close ends the connections.
func (r *River) Close() { r.pool.Close() }

// Email is a job's arguments: what the gateway gets as a request's body.
type Email struct{ json.RawMessage }

// Kind is River's name for the job.
func (Email) Kind() string { return "email" }

// noop does a job's work: none.
type noop struct {
	river.WorkerDefaults[Email]
	worked *atomic.Int64
}

// Work counts the job, so that the database is not asked while there is work left.
func (n *noop) Work(context.Context, *river.Job[Email]) error {
	n.worked.Add(1)
	return nil
}

// Run inserts the jobs, Inserters at a time, while a client works them off, and returns
// how long it took from the first insert until Postgres says that all are completed.
// Jobs of an earlier run are dropped first.
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
	begun := time.Now()
	err = r.insert(ctx, client, jobs)
	if err == nil {
		err = r.awaitCompleted(ctx, worked, len(jobs))
	}
	took := time.Since(begun)
	if stopping := client.Stop(context.WithoutCancel(ctx)); stopping != nil {
		err = errors.Join(err, fmt.Errorf("stop river: %w", stopping))
	}
	return took, err
}

// insert gives each job a transaction of its own.
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

// completionPoll is how often the end is looked for: a fraction of a per cent of a run.
const completionPoll = 5 * time.Millisecond

// awaitCompleted waits until no job is left, by the index of River's own fetch, and then
// counts.
func (r *River) awaitCompleted(ctx context.Context, worked *atomic.Int64, jobs int) error {
	for worked.Load() < int64(jobs) {
		if err := service.Pause(ctx, completionPoll); err != nil {
			return err
		}
	}
	for open := true; open; {
		err := r.pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM river_job WHERE state IN ('available', 'pending', 'retryable', 'running', 'scheduled'))`).Scan(&open)
		if err != nil {
			return fmt.Errorf("look for jobs that are left: %w", err)
		}
		if open {
			if err := service.Pause(ctx, completionPoll); err != nil {
				return err
			}
		}
	}
	return nil
}

// Completed counts the jobs of the last run that River holds as completed.
func (r *River) Completed(ctx context.Context) (int, error) {
	var n int
	if err := r.pool.QueryRow(ctx, `SELECT count(*) FROM river_job WHERE state = 'completed'`).Scan(&n); err != nil {
		return 0, fmt.Errorf("count completed jobs: %w", err)
	}
	return n, nil
}
