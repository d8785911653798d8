package programs_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"email-gateway/scripts/local/programs"
)

// start starts a shell script whose output is in the log.
func start(t *testing.T, script string) (p *programs.Program, log string) {
	t.Helper()
	log = filepath.Join(t.TempDir(), "log", "sh.log")
	p, err := programs.Start(t.Context(), programs.Spec{Path: "/bin/sh", Args: []string{"-c", script}, Environ: []string{"WORD=ready"}, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	return p, log
}

// prints is ready when the log contains the word.
func prints(log, word string) func(context.Context) error {
	return func(context.Context) error {
		if text, err := os.ReadFile(log); err != nil || !strings.Contains(string(text), word) {
			return errors.New("not printed")
		}
		return nil
	}
}

// A program that was ready and exited counts as ready; one that exits before, or is not ready in time, does not.
func TestAwait(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]string{
		"echo $WORD; exec sleep 600": "", "echo $WORD": "", "exit 3": "exited during startup with exit status 3", "exec sleep 600": "is not ready: not printed",
	} {
		p, log := start(t, script)
		timeout := time.Minute
		if strings.HasPrefix(script, "exec") {
			timeout = time.Millisecond
		} else if !strings.Contains(script, "sleep") {
			<-p.Exited
		}
		if err := p.Await(t.Context(), timeout, prints(log, "ready")); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", script, err, want)
		}
	}
}

// Stop waits for a graceful exit and Err returns its error; a program that ignores SIGTERM is killed.
func TestStop(t *testing.T) {
	t.Parallel()
	p, log := start(t, `trap 'exit 4' TERM; echo $WORD; while :; do sleep 0.01; done`)
	if err := p.Await(t.Context(), time.Minute, prints(log, "ready")); err != nil {
		t.Fatal(err)
	}
	if err := p.Err(); err != nil {
		t.Errorf("while it runs: %v", err)
	}
	if err := p.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if exit := (*exec.ExitError)(nil); !errors.As(p.Err(), &exit) || exit.ExitCode() != 4 {
		t.Errorf("it ended with %v", p.Err())
	}
	if err := errors.Join(p.Signal(syscall.SIGCONT), p.Kill(t.Context())); err != nil {
		t.Errorf("after its exit: %v", err)
	}

	p, log = start(t, `trap '' TERM; echo $WORD; while :; do sleep 0.01; done`)
	if err := p.Await(t.Context(), time.Minute, prints(log, "ready")); err != nil {
		t.Fatal(err)
	}
	if err := p.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(t.Context(), 50*time.Millisecond); err == nil || !strings.Contains(err.Error(), "did not exit within 50ms") {
		t.Errorf("it ignores SIGTERM: %v", err)
	}
	<-p.Exited
}
