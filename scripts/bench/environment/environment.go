// Package environment runs the gateway's real programs with private servers, for the sections of the
// benchmark and their references.
package environment

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	_ "github.com/lib/pq" // the driver of all databases here

	"email-gateway/scripts/local"
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
	if err := os.MkdirAll(filepath.Join(r.cfg.Dir, "log"), 0o700); err != nil {
		return fmt.Errorf("create a directory: %w", err)
	}
	fmt.Fprintln(r.cfg.Out, "building the programs, starting postgres, redis and rabbitmq")
	errs := make([]error, 4)
	var starting sync.WaitGroup
	for i, service := range []*local.Service{r.Postgres, r.Redis, r.RabbitMQ} {
		starting.Go(func() { errs[i] = service.Open(ctx) })
	}
	starting.Go(func() { errs[3] = r.build(ctx) })
	starting.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	var err error
	if r.Server, err = sql.Open("postgres", r.Postgres.URL); err != nil {
		return fmt.Errorf("open database: %w", err)
	}
	return r.makeTemplate(ctx)
}

func (r *Environment) build(ctx context.Context) error {
	more := []string{naive}
	if r.cfg.Profiles != "" {
		overlay, err := writeOverlay(r.cfg.Root, r.cfg.Dir)
		if err != nil {
			return err
		}
		more = append([]string{"-overlay", overlay}, more...)
	}
	return local.Build(ctx, r.cfg.Root, r.bin(""), more...)
}

func (r *Environment) makeTemplate(ctx context.Context) error {
	if _, err := r.Server.ExecContext(ctx, "CREATE DATABASE "+template); err != nil {
		return fmt.Errorf("create database: %w", err)
	}
	url := r.DatabaseURL(template)
	if _, err := r.run(ctx, url, "migrate", "up"); err != nil {
		return err
	}
	var err error
	r.key, err = r.tenant(ctx, url, Company, Sender)
	return err
}

// tenant creates a company and a key for it, as an operator does. The key has no rate limit.
func (r *Environment) tenant(ctx context.Context, databaseURL, name, from string) (key string, err error) {
	if _, err := r.run(ctx, databaseURL, "gatewayctl", "company", "create", "--name", name, "--default-from", from, "--json"); err != nil {
		return "", err
	}
	out, err := r.run(ctx, databaseURL, "gatewayctl", "key", "create", "--company", name, "--rate", "0", "--json",
		"--scopes", "emails:send,emails:read,mailings:write,mailings:read,recipients:write,suppressions:write")
	if err != nil {
		return "", err
	}
	var made struct{ Key string }
	if err := json.Unmarshal(out, &made); err != nil || made.Key == "" {
		return "", fmt.Errorf("gatewayctl key create printed %q", out)
	}
	return made.Key, nil
}

// Dir is a directory for data.
func (r *Environment) Dir() string { return r.cfg.Dir }

func (r *Environment) bin(name string) string { return filepath.Join(r.cfg.Dir, "bin", name) }

// run runs a command-line program.
func (r *Environment) run(ctx context.Context, databaseURL, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, r.bin(name), args...)
	cmd.Env = environ(map[string]string{"DATABASE_URL": databaseURL})
	out, err := cmd.Output()
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
		err = fmt.Errorf("%w: %s", err, failed.Stderr)
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return out, nil
}

// DatabaseURL returns the URL of another database on the same server.
func (r *Environment) DatabaseURL(name string) string {
	return strings.Replace(r.Postgres.URL, "/gateway?", "/"+name+"?", 1)
}

// Durability describes when the servers write a commit to disk.
func (r *Environment) Durability(ctx context.Context) (string, error) {
	return local.Durability(ctx, r.Server, r.Redis.URL)
}

// ServerUsage returns the resource usage of Postgres, Redis or RabbitMQ since its start.
func (r *Environment) ServerUsage(service *local.Service) (Usage, error) {
	pid, err := service.PID()
	if err != nil {
		return Usage{}, err
	}
	return UsageOf(pid)
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
	for _, service := range []*local.Service{r.Postgres, r.Redis, r.RabbitMQ} {
		errs = append(errs, service.Destroy(ctx))
	}
	return errors.Join(errs...)
}

// Scale returns the value for a full or a quick run.
func Scale[T any](r *Environment, whole, quick T) T {
	if r.Quick {
		return quick
	}
	return whole
}
