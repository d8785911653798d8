package rabbitmqtest

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

func (s *Server) signal(signal syscall.Signal) {
	s.tb.Helper()
	pid, err := strconv.Atoi(strings.TrimSpace(s.read("rabbitmq", "pid")))
	if err != nil {
		s.tb.Fatalf("find rabbitmq: %v", err)
	}
	if err := syscall.Kill(pid, signal); err != nil {
		s.tb.Fatalf("signal rabbitmq: %v", err)
	}
}

func (s *Server) read(path ...string) string {
	s.tb.Helper()
	text, err := os.ReadFile(filepath.Join(append([]string{s.dir}, path...)...))
	if err != nil {
		s.tb.Fatalf("find rabbitmq: %v", err)
	}
	return string(text)
}

// script runs services.sh on this server alone and returns what it printed.
func (s *Server) script(command string) string {
	s.tb.Helper()
	// The test's context may have ended: clean-up runs after it.
	run := exec.CommandContext(context.Background(), script(s.tb), command, "rabbitmq")
	run.Env = []string{"LOCAL_DIR=" + s.dir}
	for _, setting := range os.Environ() {
		// A URL or port in the environment would name another server.
		if name, _, _ := strings.Cut(setting, "="); name != "LOCAL_DIR" && !strings.HasPrefix(name, "RABBITMQ_") {
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
