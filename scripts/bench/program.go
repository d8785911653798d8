package bench

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
	Addr string // host:port at which it answers HTTP

	rig    *Rig
	cmd    *exec.Cmd
	log    string
	exited chan struct{} // closed when it has ended, with err
	err    error
}

const (
	// startPatience is how long a program may take until it is ready, on a machine that
	// may be slow.
	startPatience = 30 * time.Second
	// stopPatience is longer than the grace of every program.
	stopPatience = 70 * time.Second
)

// readyPath is where a program says that it is ready.
var readyPath = map[string]string{"api": "/health", "dispatcher": "/readyz", "worker": "/readyz", "naive": "/health"}

// Start starts a program (api, dispatcher, worker, or naive) and returns when it is ready. env is
// for this one alone. Any number of each may run.
func (s *System) Start(ctx context.Context, kind string, env map[string]string) (*Program, error) {
	addr, err := local.FreeAddress()
	if err != nil {
		return nil, err
	}
	p := &Program{Kind: kind, Addr: addr, rig: s.rig, exited: make(chan struct{})}
	p.log = filepath.Join(s.rig.cfg.Dir, "log", fmt.Sprintf("%s-%s-%s.log", s.name, kind, addr[strings.IndexByte(addr, ':')+1:]))
	all := maps.Clone(s.env)
	all[strings.ToUpper(kind)+"_ADDR"], all["METRICS_ADDR"] = addr, "127.0.0.1:0"
	maps.Copy(all, env)
	out, err := os.OpenFile(p.log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", kind, err)
	}
	defer out.Close()
	p.cmd = exec.CommandContext(context.WithoutCancel(ctx), s.rig.bin(kind)) // Stop ends it, in good order
	p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = environ(all), out, out
	// A Ctrl-C ends the run, and the run ends its programs; if it dies, they die too.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", kind, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.exited)
	}()
	s.rig.started(p)
	return p, p.awaitReady(ctx)
}

func (p *Program) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.Addr+readyPath[p.Kind], http.NoBody)
		if err != nil {
			return err
		}
		if answer, err := http.DefaultClient.Do(request); err == nil {
			_ = answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-p.exited:
			return fmt.Errorf("%s ended at once: %w; see %s", p.Kind, p.err, p.log)
		default:
		}
		if service.Pause(ctx, 20*time.Millisecond) != nil {
			return fmt.Errorf("%s does not become ready; see %s", p.Kind, p.log)
		}
	}
}

// Usage is what the program has taken of the machine since its start.
func (p *Program) Usage() (Usage, error) { return usageOf(p.cmd.Process.Pid) }

// Stop ends the program in good order. Ending one that ended by itself is an error, as
// whatever was measured with it is worth nothing.
func (p *Program) Stop(ctx context.Context) error {
	defer p.rig.stopped(p)
	select {
	case <-p.exited:
		return fmt.Errorf("%s had ended by itself: %w; see %s", p.Kind, p.err, p.log)
	default:
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", p.Kind, err)
	}
	ctx, cancel := context.WithTimeout(ctx, stopPatience)
	defer cancel()
	select {
	case <-p.exited:
	case <-ctx.Done():
		_ = p.cmd.Process.Kill()
		<-p.exited
		return fmt.Errorf("%s did not end within %s; see %s", p.Kind, stopPatience, p.log)
	}
	if p.err != nil {
		return fmt.Errorf("%s ended with %w; see %s", p.Kind, p.err, p.log)
	}
	return nil
}
