// Package redistest gives a test its place in Redis: a prefix of its own on the
// shared server, or a private server that it may stop, kill and freeze. The tests
// of the queue's adapter, of the dispatcher and of the worker use it; no program does.
package redistest

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
)

// Shared returns the URL of the server that all tests use, and a prefix for this
// test's queues, whose keys are deleted when the test ends. It needs REDIS_URL;
// without it the test fails.
func Shared(tb testing.TB) (url, prefix string) {
	tb.Helper()
	url = os.Getenv("REDIS_URL")
	if url == "" {
		tb.Fatal("REDIS_URL is not set: run the tests through ./scripts/test.sh")
	}
	prefix = "test-" + uuid.NewString() + ":"
	tb.Cleanup(func() { clean(tb, url, prefix) })
	return url, prefix
}

func clean(tb testing.TB, url, prefix string) {
	o, err := redis.ParseURL(url)
	if err != nil {
		tb.Errorf("read REDIS_URL: %v", err)
		return
	}
	client := redis.NewClient(o)
	defer func() { _ = client.Close() }()
	ctx := context.Background() // the test's own has ended
	keys := client.Scan(ctx, 0, "asynq:{"+prefix+"*", 1000).Iterator()
	deletions := client.Pipeline()
	for keys.Next(ctx) {
		deletions.Unlink(ctx, keys.Val())
	}
	if _, err := deletions.Exec(ctx); err != nil {
		tb.Errorf("clean up redis: %v", err)
	}
	names := client.SScan(ctx, "asynq:queues", 0, prefix+"*", 1000).Iterator()
	for names.Next(ctx) {
		client.SRem(ctx, "asynq:queues", names.Val())
	}
	if err := keys.Err(); err != nil {
		tb.Errorf("clean up redis: %v", err)
	}
}

// Server is a Redis of the test's own, with the settings that the gateway runs on.
type Server struct {
	URL string

	tb  testing.TB
	dir string
}

// Start starts a server on a free port of loopback, and destroys it with its data
// when the test ends.
func Start(tb testing.TB) *Server {
	tb.Helper()
	s := &Server{tb: tb, dir: tb.TempDir()}
	tb.Cleanup(func() { s.script("destroy") })
	s.Start()
	line := s.script("env")
	_, quoted, _ := strings.Cut(line, "=")
	s.URL = strings.Trim(strings.TrimSpace(quoted), "'")
	return s
}

// Start starts the server again, with the data and on the port it had.
func (s *Server) Start() { s.tb.Helper(); s.script("start") }

// Stop ends the server in good order: it keeps what it holds.
func (s *Server) Stop() { s.tb.Helper(); s.script("stop") }

// Kill ends the server as a crash would.
func (s *Server) Kill() { s.tb.Helper(); s.script("kill") }

// Freeze stops the server's process: connections stay open and nothing answers.
func (s *Server) Freeze() { s.tb.Helper(); s.signal(syscall.SIGSTOP) }

// Thaw lets a frozen server go on.
func (s *Server) Thaw() { s.tb.Helper(); s.signal(syscall.SIGCONT) }

func (s *Server) signal(signal syscall.Signal) {
	s.tb.Helper()
	text, err := os.ReadFile(filepath.Join(s.dir, "redis", "pid"))
	if err != nil {
		s.tb.Fatalf("find redis: %v", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		s.tb.Fatalf("find redis: %v", err)
	}
	if err := syscall.Kill(pid, signal); err != nil {
		s.tb.Fatalf("signal redis: %v", err)
	}
}

// script runs services.sh on this server alone and returns what it printed.
func (s *Server) script(command string) string {
	s.tb.Helper()
	// The test's context may have ended: clean-up runs after it.
	run := exec.CommandContext(context.Background(), script(s.tb), command, "redis")
	run.Env = []string{"LOCAL_DIR=" + s.dir}
	for _, setting := range os.Environ() {
		// A URL or port in the environment would name another server.
		if name, _, _ := strings.Cut(setting, "="); name != "LOCAL_DIR" && name != "REDIS_URL" && name != "REDIS_PORT" {
			run.Env = append(run.Env, setting)
		}
	}
	var out, log bytes.Buffer
	run.Stdout, run.Stderr = &out, &log
	if err := run.Run(); err != nil {
		s.tb.Fatalf("services.sh %s: %v\n%s", command, err, log.String())
	}
	return out.String()
}

// script finds services.sh from wherever the test runs.
func script(tb testing.TB) string {
	tb.Helper()
	dir, err := os.Getwd()
	if err != nil {
		tb.Fatal(err)
	}
	for {
		path := filepath.Join(dir, "scripts", "services.sh")
		if _, err := os.Stat(path); err == nil {
			return path
		}
		if dir == filepath.Dir(dir) {
			tb.Fatal("scripts/services.sh not found above the test")
		}
		dir = filepath.Dir(dir)
	}
}
