package bench

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"

	"github.com/redis/go-redis/v9"
)

// System is one gateway: a migrated database of its own with one tenant in it, an emptied
// Redis, and the programs that are started in it. Only one system works at a time: Redis
// and RabbitMQ are the rig's.
type System struct {
	DatabaseURL string
	Database    *sql.DB // for seeding and looking
	// Key is the tenant's. It may do everything and has no rate limit.
	Key string

	rig  *Rig
	name string
	env  map[string]string
}

// NewSystem makes a system. env is for all its programs, on top of the defaults, which are
// those of production but for what a machine without an internet connection cannot have.
func (r *Rig) NewSystem(ctx context.Context, env map[string]string) (*System, error) {
	r.made++
	s := &System{Key: r.key, rig: r, name: fmt.Sprintf("bench_%d", r.made)}
	if _, err := r.server.ExecContext(ctx, "CREATE DATABASE "+s.name+" TEMPLATE "+template); err != nil {
		return nil, fmt.Errorf("create database: %w", err)
	}
	s.DatabaseURL = r.databaseURL(s.name)
	var err error
	if s.Database, err = sql.Open("postgres", s.DatabaseURL); err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	if err := r.EmptyRedis(ctx); err != nil {
		return nil, err
	}
	s.env = map[string]string{
		"DATABASE_URL": s.DatabaseURL, "REDIS_URL": r.Redis.URL, "RABBITMQ_URL": r.RabbitMQ.URL,
		"AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench",
		"CPF_CNPJ_KEYS": "bench:" + secret(), "UNSUBSCRIBE_KEY": secret(), "PUBLIC_URL": "https://mail.bancada.example",
		"STORAGE_URL": "file://" + filepath.Join(r.cfg.Dir, "storage"),
		"MX_RESOLVER": "off",
		// Quotas are counted and checked as ever, and never met.
		"QUOTA_SCHEDULED_EMAILS": outOfReach, "QUOTA_EMAILS_PER_DAY": outOfReach, "QUOTA_STORED_BODY_BYTES": outOfReach, "QUOTA_RECIPIENTS": outOfReach,
		"QUOTA_STORED_FILE_BYTES": outOfReach, "QUOTA_RUNNING_MAILINGS": outOfReach, "QUOTA_MAILING_ROWS_PER_DAY": outOfReach,
	}
	if r.cfg.Profiles != "" {
		s.env["BENCH_PROFILES"] = r.cfg.Profiles
	}
	maps.Copy(s.env, env)
	return s, nil
}

// outOfReach is a limit that no measurement comes near.
const outOfReach = "1000000000000000"

// Tenant makes another company in the system and returns a key of it.
func (s *System) Tenant(ctx context.Context, name, from string) (key string, err error) {
	return s.rig.tenant(ctx, s.DatabaseURL, name, from)
}

// Settle does at once what autovacuum would do during the measurements, and brings the
// planner's numbers up to date.
func (s *System) Settle(ctx context.Context) error {
	if _, err := s.Database.ExecContext(ctx, "VACUUM (ANALYZE)"); err != nil {
		return fmt.Errorf("vacuum: %w", err)
	}
	return s.Checkpoint(ctx)
}

// Checkpoint writes to disk what Postgres holds back, so that what went before does not
// cost the measurement that comes next.
func (s *System) Checkpoint(ctx context.Context) error {
	if _, err := s.Database.ExecContext(ctx, "CHECKPOINT"); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
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
	if _, dropping := s.rig.server.ExecContext(ctx, "DROP DATABASE "+s.name+" WITH (FORCE)"); dropping != nil {
		err = errors.Join(err, fmt.Errorf("drop database: %w", dropping))
	}
	return err
}

// EmptyRedis removes every key.
func (r *Rig) EmptyRedis(ctx context.Context) (err error) {
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

// RedisClient connects to the rig's Redis.
func (r *Rig) RedisClient() (*redis.Client, error) {
	o, err := redis.ParseURL(r.Redis.URL)
	if err != nil {
		return nil, fmt.Errorf("read the URL of redis: %w", err)
	}
	return redis.NewClient(o), nil
}

func secret() string {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	return base64.StdEncoding.EncodeToString(key)
}

// environ is what a program is started with: nothing of the caller's own gateway.
func environ(all map[string]string) []string {
	list := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}
	for name, value := range all {
		list = append(list, name+"="+value)
	}
	return list
}
