package environment

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"email-gateway/scripts/local"
	"email-gateway/shared/service"
)

// Program is one process of a system.
type Program struct {
	Kind string // api, dispatcher, worker or naive
	Addr string // host:port of its HTTP server

	Environment *Environment
	cmd         *exec.Cmd
	log         string
	exited      chan struct{} // closed when it has exited with err
	err         error
}

const (
	// startTimeout is the timeout until a program is ready, on a slow machine.
	startTimeout = 30 * time.Second
	// stopTimeout is longer than the grace period of every program.
	stopTimeout = 70 * time.Second
)

// readyPath is the path of a program's readiness check.
var readyPath = map[string]string{"api": "/health", "dispatcher": "/readyz", "worker": "/readyz", "naive": "/health"}

// Start starts a program (api, dispatcher, worker, or naive) and returns when it is ready. env is
// for this program only. Any number of each may run.
func (s *System) Start(ctx context.Context, kind string, env map[string]string) (*Program, error) {
	addr, err := local.FreeAddress()
	if err != nil {
		return nil, err
	}
	p := &Program{Kind: kind, Addr: addr, Environment: s.environment, exited: make(chan struct{})}
	p.log = filepath.Join(s.environment.cfg.Dir, "log", fmt.Sprintf("%s-%s-%s.log", s.name, kind, addr[strings.IndexByte(addr, ':')+1:]))
	all := maps.Clone(s.env)
	all[strings.ToUpper(kind)+"_ADDR"], all["METRICS_ADDR"] = addr, "127.0.0.1:0"
	maps.Copy(all, env)
	out, err := os.OpenFile(p.log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", kind, err)
	}
	defer out.Close()
	p.cmd = exec.CommandContext(context.WithoutCancel(ctx), s.environment.bin(kind)) // Stop stops it gracefully
	p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = environ(all), out, out
	// Ctrl-C stops the run, and the run stops its programs; if it is killed, they are killed too.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", kind, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.exited)
	}()
	s.environment.started(p)
	return p, p.awaitReady(ctx)
}

func (p *Program) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.Addr+readyPath[p.Kind], http.NoBody)
		if err != nil {
			return err
		}
		if response, err := http.DefaultClient.Do(request); err == nil {
			_ = response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-p.exited:
			return fmt.Errorf("%s exited during startup: %w; see %s", p.Kind, p.err, p.log)
		default:
		}
		if service.Pause(ctx, 20*time.Millisecond) != nil {
			return fmt.Errorf("%s is not ready; see %s", p.Kind, p.log)
		}
	}
}

// Usage returns the program's resource usage since its start.
func (p *Program) Usage() (Usage, error) { return UsageOf(p.cmd.Process.Pid) }

// Stop stops the program gracefully. It is an error if the program has exited before, because
// measurements with it are invalid.
func (p *Program) Stop(ctx context.Context) error {
	defer p.Environment.stopped(p)
	select {
	case <-p.exited:
		return fmt.Errorf("%s exited unexpectedly: %w; see %s", p.Kind, p.err, p.log)
	default:
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", p.Kind, err)
	}
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	select {
	case <-p.exited:
	case <-ctx.Done():
		_ = p.cmd.Process.Kill()
		<-p.exited
		return fmt.Errorf("%s did not exit within %s; see %s", p.Kind, stopTimeout, p.log)
	}
	if p.err != nil {
		return fmt.Errorf("%s exited with %w; see %s", p.Kind, p.err, p.log)
	}
	return nil
}
