package environment

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"path/filepath"

	"github.com/redis/go-redis/v9"

	"email-gateway/scripts/local/programs"
)

// System is one gateway: a migrated database of its own with one tenant, an empty Redis, and the
// programs started in it. Only one system may work at a time: Redis and RabbitMQ are shared.
type System struct {
	DatabaseURL string
	Database    *sql.DB // for seeding and queries
	// Key is the tenant's key, with all scopes and no rate limit.
	Key string

	environment *Environment
	name        string
	env         map[string]string
}

// NewSystem returns a system. env is for all its programs, in addition to the defaults, which are
// those of production except for settings that need an internet connection.
func (r *Environment) NewSystem(ctx context.Context, env map[string]string) (*System, error) {
	r.made++
	s := &System{Key: r.key, environment: r, name: fmt.Sprintf("bench_%d", r.made)}
	if _, err := r.Server.ExecContext(ctx, "CREATE DATABASE "+s.name+" TEMPLATE "+template); err != nil {
		return nil, fmt.Errorf("create database: %w", err)
	}
	s.DatabaseURL = r.DatabaseURL(s.name)
	var err error
	if s.Database, err = sql.Open("postgres", s.DatabaseURL); err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	if err := r.EmptyRedis(ctx); err != nil {
		return nil, err
	}
	s.env = programs.Settings()
	maps.Copy(s.env, map[string]string{
		"DATABASE_URL": s.DatabaseURL, "REDIS_URL": r.Redis.URL, "RABBITMQ_URL": r.RabbitMQ.URL,
		"STORAGE_URL": "file://" + filepath.Join(r.cfg.Dir, "storage", s.name),
		// Quotas are counted and checked, but never reached.
		"QUOTA_SCHEDULED_EMAILS": outOfReach, "QUOTA_EMAILS_PER_DAY": outOfReach, "QUOTA_STORED_BODY_BYTES": outOfReach, "QUOTA_RECIPIENTS": outOfReach,
		"QUOTA_STORED_FILE_BYTES": outOfReach, "QUOTA_RUNNING_MAILINGS": outOfReach, "QUOTA_MAILING_ROWS_PER_DAY": outOfReach,
	})
	if r.cfg.Profiles != "" {
		s.env["BENCH_PROFILES"] = r.cfg.Profiles
	}
	maps.Copy(s.env, env)
	return s, nil
}

// outOfReach is a limit that no measurement reaches.
const outOfReach = "1000000000000000"

// Tenant creates another company in the system and returns its key.
func (s *System) Tenant(ctx context.Context, name, from string) (key string, err error) {
	return s.environment.tenant(ctx, s.DatabaseURL, name, from)
}

// Vacuum runs VACUUM, which autovacuum would run during the measurements, and updates the planner's
// statistics.
func (s *System) Vacuum(ctx context.Context) error {
	if _, err := s.Database.ExecContext(ctx, "VACUUM (ANALYZE)"); err != nil {
		return fmt.Errorf("vacuum: %w", err)
	}
	return s.Checkpoint(ctx)
}

// Checkpoint makes Postgres write its dirty pages, so that earlier work does not slow down the next
// measurement.
func (s *System) Checkpoint(ctx context.Context) error {
	if _, err := s.Database.ExecContext(ctx, "CHECKPOINT"); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	return nil
}

// Exec runs a statement.
func (s *System) Exec(ctx context.Context, statement string, args ...any) error {
	if _, err := s.Database.ExecContext(ctx, statement, args...); err != nil {
		return fmt.Errorf("%s: %w", statement, err)
	}
	return nil
}

// Count runs a statement that returns one number.
func (s *System) Count(ctx context.Context, statement string, args ...any) (n int64, err error) {
	if err := s.Database.QueryRowContext(ctx, statement, args...).Scan(&n); err != nil {
		return 0, fmt.Errorf("%s: %w", statement, err)
	}
	return n, nil
}

// Close drops the system's database. Its programs must have been stopped.
func (s *System) Close(ctx context.Context) error {
	err := s.Database.Close()
	if _, dropping := s.environment.Server.ExecContext(ctx, "DROP DATABASE "+s.name+" WITH (FORCE)"); dropping != nil {
		err = errors.Join(err, fmt.Errorf("drop database: %w", dropping))
	}
	return err
}

// EmptyRedis removes every key.
func (r *Environment) EmptyRedis(ctx context.Context) (err error) {
	client, err := r.RedisClient()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	if err := client.FlushAll(ctx).Err(); err != nil {
		return fmt.Errorf("empty redis: %w", err)
	}
	return nil
}

// RedisClient connects to the environment's Redis.
func (r *Environment) RedisClient() (*redis.Client, error) {
	o, err := redis.ParseURL(r.Redis.URL)
	if err != nil {
		return nil, fmt.Errorf("read the URL of redis: %w", err)
	}
	return redis.NewClient(o), nil
}
