// Package local provides the servers of a run on this machine: private Postgres, Redis, RabbitMQ and S3 servers of
// scripts/services.sh, HTTP servers in its own process, free addresses and the usage of processes; and what the main
// functions of such runs share. Package programs below it starts programs. The chaos run, the benchmark and the
// end-to-end tests use it.
package local

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"email-gateway/scripts/local/programs"
)

// Service is a private Postgres, Redis, RabbitMQ or S3 server. It keeps its port across restarts.
type Service struct {
	Name string
	URL  string // as services.sh env prints it

	Addr string // host:port that it listens on

	root, dir string
	kills     atomic.Int64
}

// The names of services.
const (
	Postgres = "postgres"
	Redis    = "redis"
	RabbitMQ = "rabbitmq"
	S3       = "s3"
)

// NewService returns the service of that name of the checkout root, not started yet. Its data and
// log are in a directory of its own below dir.
func NewService(root, dir, name string) *Service {
	return &Service{Name: name, root: root, dir: filepath.Join(dir, name)}
}

var exported = regexp.MustCompile(`_URL='?([^'\n]*)'?\n`)

// Open starts the service for the first time and reads its URL.
func (s *Service) Open(ctx context.Context) error {
	if err := s.Start(ctx); err != nil {
		return err
	}
	out, err := s.script(ctx, "env", s.Name)
	if err != nil {
		return err
	}
	found := exported.FindStringSubmatch(out)
	if found == nil {
		return fmt.Errorf("services.sh env %s printed %q", s.Name, out)
	}
	u, err := url.Parse(found[1])
	if err != nil {
		return fmt.Errorf("read the URL of %s: %w", s.Name, err)
	}
	s.URL, s.Addr = found[1], u.Host
	if s.Name == S3 { // its URL has the bucket as host
		_, s.Addr, _ = strings.Cut(u.Query().Get("endpoint"), "://")
	}
	return nil
}

// Through returns the service's URL with another address.
func (s *Service) Through(addr string) string { return strings.Replace(s.URL, s.Addr, addr, 1) }

// Start, Stop and Kill return when they are done. After Kill, data that the process wrote are kept
// by the operating system, buffered data are lost.
func (s *Service) Start(ctx context.Context) error { return s.command(ctx, "start") }

// Stop stops the service gracefully.
func (s *Service) Stop(ctx context.Context) error { return s.command(ctx, "stop") }

// Kill kills the service with SIGKILL.
func (s *Service) Kill(ctx context.Context) error {
	s.kills.Add(1)
	return s.command(ctx, "kill")
}

// Kills returns how often it was killed.
func (s *Service) Kills() int { return int(s.kills.Load()) }

// Destroy kills the service and removes its data.
func (s *Service) Destroy(ctx context.Context) error {
	_ = s.command(ctx, "kill") // it may be down already
	return s.command(ctx, "destroy")
}

// Signal sends a signal to the service's process: SIGSTOP freezes it, SIGCONT resumes it.
func (s *Service) Signal(signal syscall.Signal) error {
	pid, err := s.PID()
	if err != nil {
		return err
	}
	if err := syscall.Kill(pid, signal); err != nil {
		return fmt.Errorf("signal %s: %w", s.Name, err)
	}
	return nil
}

// PID returns the id of the service's main process.
func (s *Service) PID() (int, error) {
	text, err := os.ReadFile(filepath.Join(s.dir, s.Name, "pid"))
	if err != nil {
		return 0, fmt.Errorf("find the process of %s: %w", s.Name, err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || pid < 2 {
		return 0, fmt.Errorf("find the process of %s: its pid is %q", s.Name, text)
	}
	return pid, nil
}

// Usage returns the service's resource usage since its start.
func (s *Service) Usage() (Usage, error) {
	pid, err := s.PID()
	if err != nil {
		return Usage{}, err
	}
	return UsageOf(pid)
}

// Control runs rabbitmqctl on the broker.
func (s *Service) Control(ctx context.Context, args ...string) error {
	_, err := s.script(ctx, append([]string{"rabbitmqctl"}, args...)...)
	return err
}

func (s *Service) command(ctx context.Context, command string) error {
	_, err := s.script(ctx, command, s.Name)
	return err
}

func (s *Service) script(ctx context.Context, args ...string) (string, error) {
	environ := os.Environ()
	for _, name := range []string{"POSTGRES_PORT", "REDIS_PORT", "RABBITMQ_PORT", "S3_PORT", "DATABASE_URL", "REDIS_URL", "RABBITMQ_URL", "S3_URL"} {
		environ = append(environ, name+"=") // ignore the ports of the caller's own services
	}
	out, err := programs.Output(ctx, append(environ, "LOCAL_DIR="+s.dir), filepath.Join(s.root, "scripts/services.sh"), args...)
	return string(out), err
}

// Home returns the directory of the service's data and log.
func (s *Service) Home() string { return filepath.Join(s.dir, s.Name) }

// Newest returns the service's file that matches the pattern below its directory and sorts last by
// name.
func (s *Service) Newest(pattern string) (string, error) {
	found, err := filepath.Glob(filepath.Join(s.dir, s.Name, pattern))
	if err != nil {
		return "", fmt.Errorf("find %s of %s: %w", pattern, s.Name, err)
	}
	if len(found) == 0 {
		return "", fmt.Errorf("find %s of %s: there is none", pattern, s.Name)
	}
	return slices.Max(found), nil
}

// Open opens the services, all at once.
func Open(ctx context.Context, services ...*Service) error {
	return each(services, func(s *Service) error { return s.Open(ctx) })
}

// Destroy destroys the services, all at once. It skips those that are nil.
func Destroy(ctx context.Context, services ...*Service) error {
	return each(services, func(s *Service) error {
		if s == nil {
			return nil
		}
		return s.Destroy(ctx)
	})
}

func each(services []*Service, do func(*Service) error) error {
	var running sync.WaitGroup
	errs := make([]error, len(services))
	for i, s := range services {
		running.Go(func() { errs[i] = do(s) })
	}
	running.Wait()
	return errors.Join(errs...)
}
