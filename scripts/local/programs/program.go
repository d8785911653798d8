// Package programs builds, starts, watches and ends programs on this machine: those of the gateway, and others
// that a run needs beside them. The chaos run, the benchmark and the end-to-end tests use it.
package programs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// Spec describes a process.
type Spec struct {
	Path    string // of the program
	Args    []string
	Dir     string   // where it runs; by default where the caller does
	Environ []string // see Environ
	Log     string   // the file that its output is appended to
	// Orphaned is the signal that it gets when this process dies, by default SIGKILL.
	Orphaned syscall.Signal
}

// Program is a process.
type Program struct {
	// Name is that of its file.
	Name string
	// Exited is closed when it has exited.
	Exited <-chan struct{}

	cmd *exec.Cmd
	log string
	err error // of its exit, once Exited is closed
}

// StopTimeout is longer than the grace period of every program: the longest in docker-compose.yml is
// 60 s, and the process exits after that.
const StopTimeout = 70 * time.Second

// Start starts a program, which is killed when ctx ends. Ctrl-C does not reach it: the caller stops it.
func Start(ctx context.Context, spec Spec) (*Program, error) {
	exited := make(chan struct{})
	p := &Program{Name: filepath.Base(spec.Path), Exited: exited, cmd: exec.CommandContext(ctx, spec.Path, spec.Args...), log: spec.Log}
	out, err := openLog(spec.Log)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", p.Name, err)
	}
	defer out.Close()
	p.cmd.Dir, p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = spec.Dir, spec.Environ, out, out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: cmp.Or(spec.Orphaned, syscall.SIGKILL)}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", p.Name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(exited)
	}()
	return p, nil
}

func openLog(name string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return nil, err
	}
	return os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
}

// PID returns the process's id.
func (p *Program) PID() int { return p.cmd.Process.Pid }

// Err returns an error if the program has exited with one.
func (p *Program) Err() error {
	if !p.hasExited() || p.err == nil {
		return nil
	}
	return fmt.Errorf("%s ended with %w; see %s", p.Name, p.err, p.log)
}

func (p *Program) hasExited() bool {
	select {
	case <-p.Exited:
		return true
	default:
		return false
	}
}

// Signal sends a signal: SIGSTOP freezes the program, SIGCONT resumes it. An exited one gets none.
func (p *Program) Signal(signal os.Signal) error {
	if err := p.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal %s: %w", p.Name, err)
	}
	return nil
}

// Stop stops the program gracefully. Err returns the error of its exit.
func (p *Program) Stop(ctx context.Context) error {
	return errors.Join(p.Signal(syscall.SIGTERM), p.Wait(ctx, StopTimeout))
}

// Kill kills the program like a crash.
func (p *Program) Kill(ctx context.Context) error {
	return errors.Join(p.Signal(syscall.SIGKILL), p.Wait(ctx, StopTimeout))
}

// Wait waits until the program has exited. After the timeout it is killed, which is an error.
func (p *Program) Wait(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	select {
	case <-p.Exited:
		return nil
	case <-ctx.Done():
		_ = p.cmd.Process.Kill()
		<-p.Exited
		return fmt.Errorf("%s did not exit within %s; see %s", p.Name, timeout, p.log)
	}
}
