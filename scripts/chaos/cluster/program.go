package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

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
	cmd             *exec.Cmd     // nil while it is stopped on purpose
	exited          chan struct{} // closed when cmd has exited
	kills           int
	listened        *exec.Cmd // the last process that listened
	unexpectedExits []Exit
}

// Exit is an unexpected exit. A program that has listened must not exit, whatever its dependencies do.
type Exit struct {
	Error    string
	Listened bool
}

const (
	// supervisorPause is the supervisor's delay before a restart.
	supervisorPause = 500 * time.Millisecond
	// startTimeout is the timeout until a program listens, on a busy machine.
	startTimeout = 30 * time.Second
	// stopTimeout is longer than the grace period of every program.
	stopTimeout = 70 * time.Second
)

func newProgram(c *Cluster, name, kind, addr string) *Program {
	return &Program{
		Name: name, Kind: kind, Addr: addr, Metrics: addr, cluster: c,
		env: map[string]string{strings.ToUpper(kind) + "_ADDR": addr},
		log: filepath.Join(c.cfg.Dir, "log", name+".log"),
	}
}

// Start starts the program and waits until it listens.
func (p *Program) Start(ctx context.Context) error {
	p.mu.Lock()
	err := p.launch()
	p.mu.Unlock()
	if err != nil {
		return err
	}
	return p.awaitListening(ctx)
}

// launch starts the process; p.mu is held.
func (p *Program) launch() error {
	if p.cmd != nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(p.log), 0o700); err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	out, err := os.OpenFile(p.log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	defer out.Close()
	cmd := exec.CommandContext(p.cluster.supervise, p.cluster.bin(p.Kind))
	cmd.Env, cmd.Stdout, cmd.Stderr = p.cluster.environ(p.env), out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C stops the run, and the run stops its programs
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	p.cmd, p.exited = cmd, make(chan struct{})
	go p.supervise(cmd, p.exited)
	go p.noteListening(cmd, p.exited)
	return nil
}

// noteListening waits until the process listens or has exited.
func (p *Program) noteListening(cmd *exec.Cmd, exited <-chan struct{}) {
	ctx, cancel := context.WithCancel(p.cluster.supervise)
	defer cancel()
	go func() {
		<-exited
		cancel()
	}()
	if p.awaitListening(ctx) != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listened = cmd
}

// supervise waits until the process exits, and restarts it if the exit was unexpected.
func (p *Program) supervise(cmd *exec.Cmd, exited chan<- struct{}) {
	err := cmd.Wait()
	close(exited)
	p.mu.Lock()
	unexpected := p.cmd == cmd
	if unexpected {
		p.cmd = nil
		p.unexpectedExits = append(p.unexpectedExits, Exit{fmt.Sprint(err), p.listened == cmd})
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

func (p *Program) awaitListening(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	var dialer net.Dialer
	for {
		conn, err := dialer.DialContext(ctx, "tcp", p.Addr)
		if err == nil {
			return conn.Close()
		}
		if service.Pause(ctx, 50*time.Millisecond) != nil {
			return fmt.Errorf("%s does not listen; see %s", p.Name, p.log)
		}
	}
}

// Kill kills the program like a crash. It stays down until Start.
func (p *Program) Kill(ctx context.Context) error {
	p.mu.Lock()
	p.kills++
	p.mu.Unlock()
	return p.down(ctx, syscall.SIGKILL)
}

// Stop stops the program gracefully. It stays down until Start.
func (p *Program) Stop(ctx context.Context) error { return p.down(ctx, syscall.SIGTERM) }

func (p *Program) down(ctx context.Context, signal syscall.Signal) error {
	p.mu.Lock()
	cmd, exited := p.cmd, p.exited
	p.cmd = nil // from here on its exit is expected
	p.mu.Unlock()
	if cmd == nil {
		return nil
	}
	if err := cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal %s: %w", p.Name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	select {
	case <-exited:
		return nil
	case <-ctx.Done():
		_ = cmd.Process.Kill()
		<-exited
		return fmt.Errorf("%s did not exit within %s", p.Name, stopTimeout)
	}
}

// Signal sends a signal to the process: SIGSTOP freezes it, SIGCONT resumes it. It does nothing if
// the program is down.
func (p *Program) Signal(signal syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return nil
	}
	if err := p.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal %s: %w", p.Name, err)
	}
	return nil
}

// PID returns the process id; 0 while the program is down.
func (p *Program) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return 0
	}
	return p.cmd.Process.Pid
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
	_ = p.Signal(syscall.SIGCONT)
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	_ = p.Kill(ctx)
}
