package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"email-gateway/scripts/local/programs"
	"email-gateway/shared/service"
)

// Program is one supervised process of the gateway: when it exits unexpectedly it is restarted.
type Program struct {
	Name, Kind, Addr string
	Metrics          string // address of its metrics

	cluster *Cluster
	env     map[string]string
	log     string // the file that its output is appended to

	mu              sync.Mutex
	process         *programs.Program // nil while it is stopped on purpose
	kills           int
	unexpectedExits []Exit
}

// Exit is an unexpected exit. A program that has listened must not exit, whatever its dependencies do.
type Exit struct {
	Error    string
	Listened bool
}

// supervisorPause is the supervisor's delay before a restart.
const supervisorPause = 500 * time.Millisecond

func newProgram(c *Cluster, name, kind, addr string) *Program {
	return &Program{
		Name: name, Kind: kind, Addr: addr, Metrics: addr, cluster: c,
		env: map[string]string{strings.ToUpper(kind) + "_ADDR": addr},
		log: filepath.Join(c.cfg.Dir, "log", name+".log"),
	}
}

// Start starts the program and waits until it listens, if need be after restarts.
func (p *Program) Start(ctx context.Context) error {
	p.mu.Lock()
	err := p.launch()
	p.mu.Unlock()
	if err != nil {
		return err
	}
	if err := programs.Await(ctx, programs.StartTimeout, programs.Listens(p.Addr)); err != nil {
		return fmt.Errorf("%s does not listen: %w; see %s", p.Name, err, p.log)
	}
	return nil
}

// launch starts the process; p.mu is held.
func (p *Program) launch() (err error) {
	if p.process != nil {
		return nil
	}
	p.process, err = programs.Start(p.cluster.supervise, programs.Spec{Path: p.cluster.bin(p.Kind), Environ: programs.Environ(p.cluster.settings(p.env)), Log: p.log})
	if err != nil {
		return err
	}
	go p.supervise(p.process)
	return nil
}

// supervise waits until the process exits, and restarts it if the exit was unexpected.
func (p *Program) supervise(process *programs.Program) {
	listened := process.Await(p.cluster.supervise, programs.StartTimeout, programs.Listens(p.Addr)) == nil
	<-process.Exited
	p.mu.Lock()
	unexpected := p.process == process
	if unexpected {
		p.process = nil
		p.unexpectedExits = append(p.unexpectedExits, Exit{fmt.Sprint(process.Err()), listened})
	}
	p.mu.Unlock()
	if !unexpected || service.Pause(p.cluster.supervise, supervisorPause) != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.launch(); err != nil {
		p.unexpectedExits = append(p.unexpectedExits, Exit{err.Error(), false})
	}
}

// Kill kills the program like a crash. It stays down until Start.
func (p *Program) Kill(ctx context.Context) error {
	p.mu.Lock()
	p.kills++
	p.mu.Unlock()
	return p.down(ctx, (*programs.Program).Kill)
}

// Stop stops the program gracefully. It stays down until Start.
func (p *Program) Stop(ctx context.Context) error { return p.down(ctx, (*programs.Program).Stop) }

func (p *Program) down(ctx context.Context, end func(*programs.Program, context.Context) error) error {
	p.mu.Lock()
	process := p.process
	p.process = nil // from here on its exit is expected
	p.mu.Unlock()
	if process == nil {
		return nil
	}
	return end(process, ctx)
}

// Signal sends a signal to the process: SIGSTOP freezes it, SIGCONT resumes it. It does nothing if
// the program is down.
func (p *Program) Signal(signal syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.process == nil {
		return nil
	}
	return p.process.Signal(signal)
}

// PID returns the process id; 0 while the program is down.
func (p *Program) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.process == nil {
		return 0
	}
	return p.process.PID()
}

// Kills returns how often the program was killed.
func (p *Program) Kills() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.kills
}

// UnexpectedExits returns the unexpected exits.
func (p *Program) UnexpectedExits() []Exit {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.unexpectedExits)
}

// Log returns the program's output so far.
func (p *Program) Log() ([]byte, error) {
	text, err := os.ReadFile(p.log)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return text, err
}

// Panicked reports whether the log contains the stack of a panic, which programs also log when they
// recover from it, or a fatal error of the Go runtime.
func Panicked(log []byte) bool {
	return bytes.Contains(log, []byte(" [running]:")) || bytes.Contains(log, []byte("\nfatal error: "))
}

// end kills the program in any state.
func (p *Program) end() {
	_ = p.Kill(context.Background())
}
