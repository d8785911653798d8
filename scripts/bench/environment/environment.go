// Package environment runs the gateway's real programs with private servers, for the sections of the
// benchmark and their references.
package environment

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	_ "github.com/lib/pq" // the driver of all databases here

	"email-gateway/scripts/local"
	"email-gateway/scripts/local/programs"
)

// Config describes an environment.
type Config struct {
	// Quick makes everything smaller and shorter.
	Quick bool
	// Root is the checkout, Dir a directory for data, programs and logs.
	Root, Dir string
	// Profiles is a directory into which the programs write CPU profiles; "" = no profiles.
	Profiles string
	// Out receives progress messages.
	Out io.Writer
}

// Environment is the environment of the sections: private servers and programs built as for a release.
type Environment struct {
	// Quick requests smaller counts and shorter times.
	Quick bool

	Postgres, Redis, RabbitMQ *local.Service

	cfg      Config
	Server   *sql.DB    // the server's own database, for CREATE DATABASE
	key      string     // of the tenant of every system
	made     int        // number of databases created
	programs []*Program // running programs
	mu       sync.Mutex
}

// template is a migrated database with one tenant, of which each system gets a copy.
const template = "bench_template"

// Company is the tenant of every system, and sender its default sender.
const (
	Company = "Bancada"
	Sender  = "Bancada <aviso@bancada.example>"
)

// naive is the package of the api's reference.
const naive = "./scripts/bench/cmd/naive"

// Open builds the programs and starts the servers; after an error it stops them.
func Open(ctx context.Context, cfg Config) (*Environment, error) {
	services := filepath.Join(cfg.Dir, "services")
	r := &Environment{
		Quick: cfg.Quick, cfg: cfg,
		Postgres: local.NewService(cfg.Root, services, local.Postgres),
		Redis:    local.NewService(cfg.Root, services, local.Redis),
		RabbitMQ: local.NewService(cfg.Root, services, local.RabbitMQ),
	}
	if err := r.open(ctx); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

func (r *Environment) open(ctx context.Context) error {
	fmt.Fprintln(r.cfg.Out, "building the programs, starting postgres, redis and rabbitmq")
	built := make(chan error, 1)
	go func() { built <- r.build(ctx) }()
	err := errors.Join(local.Open(ctx, r.Postgres, r.Redis, r.RabbitMQ), <-built)
	if err != nil {
		return err
	}
	if r.Server, err = sql.Open("postgres", r.Postgres.URL); err != nil {
		return fmt.Errorf("open database: %w", err)
	}
	return r.makeTemplate(ctx)
}

func (r *Environment) build(ctx context.Context) error {
	args := append(programs.Gateway(), naive)
	if r.cfg.Profiles != "" {
		overlay, err := writeOverlay(r.cfg.Root, r.cfg.Dir)
		if err != nil {
			return err
		}
		args = append([]string{"-overlay", overlay}, args...)
	}
	return programs.Build(ctx, r.cfg.Root, r.bin(""), args...)
}

func (r *Environment) makeTemplate(ctx context.Context) error {
	if _, err := r.Server.ExecContext(ctx, "CREATE DATABASE "+template); err != nil {
		return fmt.Errorf("create database: %w", err)
	}
	url := r.DatabaseURL(template)
	if _, err := programs.Output(ctx, environ(url), r.bin("migrate"), "up"); err != nil {
		return err
	}
	var err error
	r.key, err = r.tenant(ctx, url, Company, Sender)
	return err
}

// tenant creates a company and a key for it.
func (r *Environment) tenant(ctx context.Context, databaseURL, name, from string) (key string, err error) {
	return programs.NewKey(ctx, environ(databaseURL), r.bin(""), name, from,
		"emails:send,emails:read,mailings:write,mailings:read,recipients:write,suppressions:write")
}

// environ is the environment of command-line programs.
func environ(databaseURL string) []string {
	return programs.Environ(map[string]string{"DATABASE_URL": databaseURL})
}

// Dir is a directory for data.
func (r *Environment) Dir() string { return r.cfg.Dir }

func (r *Environment) bin(name string) string { return filepath.Join(r.cfg.Dir, "bin", name) }

// DatabaseURL returns the URL of another database on the same server.
func (r *Environment) DatabaseURL(name string) string {
	return strings.Replace(r.Postgres.URL, "/gateway?", "/"+name+"?", 1)
}

// Durability describes when the servers write a commit to disk.
func (r *Environment) Durability(ctx context.Context) (string, error) {
	return local.Durability(ctx, r.Server, r.Redis.URL)
}

func (r *Environment) started(p *Program) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.programs = append(r.programs, p)
}

func (r *Environment) stopped(p *Program) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.programs = slices.DeleteFunc(r.programs, func(other *Program) bool { return other == p })
}

// StopPrograms stops the programs that are still running, the newest first.
func (r *Environment) StopPrograms(ctx context.Context) error {
	r.mu.Lock()
	programs := slices.Clone(r.programs)
	r.mu.Unlock()
	var errs []error
	for _, p := range slices.Backward(programs) {
		errs = append(errs, p.Stop(ctx))
	}
	return errors.Join(errs...)
}

// Close stops everything and removes the servers' data; logs stay.
func (r *Environment) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	errs := []error{r.StopPrograms(ctx)}
	if r.Server != nil {
		errs = append(errs, r.Server.Close())
	}
	return errors.Join(append(errs, local.Destroy(ctx, r.Postgres, r.Redis, r.RabbitMQ))...)
}

// Scale returns the value for a full or a quick run.
func Scale[T any](r *Environment, whole, quick T) T {
	if r.Quick {
		return quick
	}
	return whole
}
