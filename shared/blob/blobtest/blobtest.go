// Package blobtest gives a test its storage: the S3 server that all tests share, or a
// private one that it may stop, kill and freeze. No program uses it.
package blobtest

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
)

// Shared returns the storage URL of the S3 server that all tests use: a test keeps to
// keys of its own. It needs S3_URL; without it the test fails.
func Shared(tb testing.TB) string {
	tb.Helper()
	url := os.Getenv("S3_URL")
	if url == "" {
		tb.Fatal("S3_URL is not set: run the tests through ./scripts/test.sh")
	}
	return url
}

// Server is an S3 server of the test's own. Its credentials are those of the shared
// one, which stand in the environment.
type Server struct {
	URL string // a storage URL

	tb  testing.TB
	dir string
}

// Start starts a server on a free port of loopback, and destroys it with its data
// when the test ends.
func Start(tb testing.TB) *Server {
	tb.Helper()
	Shared(tb)
	s := &Server{tb: tb, dir: tb.TempDir()}
	tb.Cleanup(func() { s.script("destroy") })
	s.Start()
	line, _, _ := strings.Cut(s.script("env"), "\n")
	_, quoted, _ := strings.Cut(line, "=")
	s.URL = strings.Trim(quoted, "'")
	return s
}

// Start starts the server again, with the data and on the port it had.
func (s *Server) Start() { s.tb.Helper(); s.script("start") }

// Stop ends the server in good order.
func (s *Server) Stop() { s.tb.Helper(); s.script("stop") }

// Kill ends the server as a crash would.
func (s *Server) Kill() { s.tb.Helper(); s.script("kill") }

// Freeze stops the server's process: connections stay open and nothing answers.
func (s *Server) Freeze() { s.tb.Helper(); s.signal(syscall.SIGSTOP) }

// Thaw lets a frozen server go on.
func (s *Server) Thaw() { s.tb.Helper(); s.signal(syscall.SIGCONT) }

func (s *Server) signal(signal syscall.Signal) {
	s.tb.Helper()
	text, err := os.ReadFile(filepath.Join(s.dir, "s3", "pid"))
	if err != nil {
		s.tb.Fatalf("find the S3 server: %v", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		s.tb.Fatalf("find the S3 server: %v", err)
	}
	if err := syscall.Kill(pid, signal); err != nil {
		s.tb.Fatalf("signal the S3 server: %v", err)
	}
}

// script runs services.sh on this server alone and returns what it printed.
func (s *Server) script(command string) string {
	s.tb.Helper()
	// The test's context may have ended: clean-up runs after it.
	run := exec.CommandContext(context.Background(), script(s.tb), command, "s3")
	run.Env = []string{"LOCAL_DIR=" + s.dir}
	for _, setting := range os.Environ() {
		// A URL or port in the environment would name another server.
		if name, _, _ := strings.Cut(setting, "="); name != "LOCAL_DIR" && name != "S3_URL" && name != "S3_PORT" {
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
