// Package servertest starts a private server for a test, which it may stop, kill and freeze: a
// postgres, redis, rabbitmq, s3 or sqs as run by scripts/services.sh, with the settings that the gateway
// requires. Only tests use it.
package servertest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Server listens on a loopback port that stays the same across restarts, as its data does.
type Server struct {
	URL string // as printed by services.sh env
	Dir string // LOCAL_DIR of services.sh

	tb       testing.TB
	name     string
	settings []string
}

// Start starts a server on a free port, and destroys it with its data when the test ends. settings
// are variables of services.sh ("NAME=value").
func Start(tb testing.TB, name string, settings ...string) *Server {
	tb.Helper()
	return StartIn(tb, tb.TempDir(), name, settings...)
}

// StartIn is Start with the data in the caller's directory.
func StartIn(tb testing.TB, dir, name string, settings ...string) *Server {
	tb.Helper()
	s := &Server{Dir: dir, tb: tb, name: name, settings: settings}
	tb.Cleanup(func() { s.script("destroy", name) })
	s.Start()
	line, _, _ := strings.Cut(s.script("env", name), "\n")
	_, quoted, _ := strings.Cut(line, "=")
	s.URL = strings.Trim(quoted, "'")
	return s
}

// Start starts the server again.
func (s *Server) Start() { s.tb.Helper(); s.boot("start") }

// Stop stops the server cleanly.
func (s *Server) Stop() { s.tb.Helper(); s.script("stop", s.name) }

// Restart stops the server cleanly and starts it again.
func (s *Server) Restart() { s.tb.Helper(); s.boot("restart") }

// Kill kills the server like a crash.
func (s *Server) Kill() { s.tb.Helper(); s.script("kill", s.name) }

// Crash kills the server and starts it again.
func (s *Server) Crash() { s.tb.Helper(); s.Kill(); s.Start() }

// Freeze stops the server's process: connections stay open and nothing responds. Threads on other
// processors continue for a moment after the signal, so it waits until all have stopped.
func (s *Server) Freeze() {
	s.tb.Helper()
	pid := s.signal(syscall.SIGSTOP)
	for deadline := time.Now().Add(3 * time.Minute); !stopped(s.tb, pid); {
		if time.Now().After(deadline) {
			s.tb.Fatalf("%s does not stop", s.name)
		}
		<-time.After(time.Millisecond)
	}
}

// stopped reads the states of a process's threads (proc(5)): T means stopped.
func stopped(tb testing.TB, pid int) bool {
	tb.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil {
		tb.Fatal(err)
	}
	for _, path := range threads {
		text, err := os.ReadFile(path)
		if err != nil { // it has ended
			continue
		}
		_, state, _ := bytes.Cut(text[bytes.LastIndexByte(text, ')'):], []byte(" "))
		if !bytes.HasPrefix(state, []byte("T")) {
			return false
		}
	}
	return true
}

// Thaw resumes a frozen server.
func (s *Server) Thaw() { s.tb.Helper(); s.signal(syscall.SIGCONT) }

// RabbitMQCtl runs the broker's own tool and returns its output.
func (s *Server) RabbitMQCtl(arguments ...string) string {
	s.tb.Helper()
	return s.script(append([]string{"rabbitmqctl"}, arguments...)...)
}

// brokers lets one RabbitMQ start at a time: each takes 10 s of CPU until it responds, and several
// at once would delay the other tests for minutes.
var brokers sync.Mutex

func (s *Server) boot(command string) {
	s.tb.Helper()
	if s.name == "rabbitmq" {
		brokers.Lock()
		defer brokers.Unlock()
	}
	s.script(command, s.name)
}

// signal returns the process that it has signalled.
func (s *Server) signal(signal syscall.Signal) (pid int) {
	s.tb.Helper()
	text, err := os.ReadFile(filepath.Join(s.Dir, s.name, "pid"))
	if err != nil {
		s.tb.Fatalf("find %s: %v", s.name, err)
	}
	pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		s.tb.Fatalf("find %s: %v", s.name, err)
	}
	if err := syscall.Kill(pid, signal); err != nil {
		s.tb.Fatalf("signal %s: %v", s.name, err)
	}
	return pid
}

// script runs services.sh and returns its output.
func (s *Server) script(arguments ...string) string {
	s.tb.Helper()
	// The test's context may have ended: clean-up runs after it.
	run := exec.CommandContext(context.Background(), servicesScript(s.tb), arguments...)
	run.Env = slices.DeleteFunc(os.Environ(), namesAServer)
	run.Env = append(append(run.Env, "LOCAL_DIR="+s.Dir), s.settings...)
	var out, log bytes.Buffer
	run.Stdout, run.Stderr = &out, &log
	if err := run.Run(); err != nil {
		s.tb.Fatalf("services.sh %s: %v\n%s", strings.Join(arguments, " "), err, log.String())
	}
	return out.String()
}

// namesAServer reports whether the variable is a URL or port of the servers shared by all tests.
func namesAServer(setting string) bool {
	name, _, _ := strings.Cut(setting, "=")
	return strings.HasSuffix(name, "_URL") || strings.HasSuffix(name, "_PORT")
}

// servicesScript finds services.sh from the test's directory.
func servicesScript(tb testing.TB) string {
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
