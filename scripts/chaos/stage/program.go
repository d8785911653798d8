package stage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"email-gateway/shared/service"
)

// Program is one process of the gateway, looked after as an operator's supervisor
// would: when it ends by itself it is started again.
type Program struct {
	Name, Kind, Addr string
	Metrics          string // where its metrics are

	stage *Stage
	env   map[string]string
	log   string // the file that its output is appended to

	mu      sync.Mutex
	cmd     *exec.Cmd     // nil while it is meant to be down
	exited  chan struct{} // closed when cmd has ended
	kills   int
	endings []string // how it ended when nobody had asked it to
}

const (
	// supervisorPause is how long the supervisor waits before it starts a program again.
	supervisorPause = 500 * time.Millisecond
	// startPatience is how long a program may take until it listens, on a machine that is
	// busy with everything at once.
	startPatience = 30 * time.Second
	// stopPatience is longer than the grace of every program.
	stopPatience = 70 * time.Second
)

func newProgram(s *Stage, name, kind, addr string) *Program {
	return &Program{
		Name: name, Kind: kind, Addr: addr, Metrics: addr, stage: s,
		env: map[string]string{strings.ToUpper(kind) + "_ADDR": addr},
		log: filepath.Join(s.cfg.Dir, "log", name+".log"),
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
	cmd := exec.CommandContext(p.stage.supervise, p.stage.bin(p.Kind))
	cmd.Env, cmd.Stdout, cmd.Stderr = p.stage.environ(p.env), out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a Ctrl-C ends the run, and the run ends its programs
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	p.cmd, p.exited = cmd, make(chan struct{})
	go p.supervise(cmd, p.exited)
	return nil
}

// supervise waits for the end of one process, and starts the next one if nobody asked
// for that end.
func (p *Program) supervise(cmd *exec.Cmd, exited chan<- struct{}) {
	err := cmd.Wait()
	close(exited)
	p.mu.Lock()
	unasked := p.cmd == cmd
	if unasked {
		p.cmd = nil
		p.endings = append(p.endings, fmt.Sprint(err))
	}
	p.mu.Unlock()
	if !unasked || service.Pause(p.stage.supervise, supervisorPause) != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.launch(); err != nil {
		p.endings = append(p.endings, err.Error())
	}
}

func (p *Program) awaitListening(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
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

// Kill ends the program as a crash does. It stays down until Start.
func (p *Program) Kill(ctx context.Context) error {
	p.mu.Lock()
	p.kills++
	p.mu.Unlock()
	return p.down(ctx, syscall.SIGKILL)
}

// Stop ends the program in good order. It stays down until Start.
func (p *Program) Stop(ctx context.Context) error { return p.down(ctx, syscall.SIGTERM) }

func (p *Program) down(ctx context.Context, signal syscall.Signal) error {
	p.mu.Lock()
	cmd, exited := p.cmd, p.exited
	p.cmd = nil // from here on its end is asked for
	p.mu.Unlock()
	if cmd == nil {
		return nil
	}
	if err := cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal %s: %w", p.Name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, stopPatience)
	defer cancel()
	select {
	case <-exited:
		return nil
	case <-ctx.Done():
		_ = cmd.Process.Kill()
		<-exited
		return fmt.Errorf("%s did not end within %s", p.Name, stopPatience)
	}
}

// Signal sends a signal to the process: SIGSTOP freezes it, SIGCONT goes on. A program
// that is down is not signalled.
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

// PID is the number of the process; 0 while it is down.
func (p *Program) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return 0
	}
	return p.cmd.Process.Pid
}

// Kills counts how often the program was killed.
func (p *Program) Kills() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.kills
}

// Endings tells how the program ended when nobody had asked it to.
func (p *Program) Endings() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.endings...)
}

// Log is what the program wrote so far.
func (p *Program) Log() ([]byte, error) {
	text, err := os.ReadFile(p.log)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return text, err
}

// Panicked says that the Go runtime ended the program.
func Panicked(log []byte) bool {
	return bytes.Contains(log, []byte("\npanic: ")) || bytes.HasPrefix(log, []byte("panic: ")) || bytes.Contains(log, []byte("\nfatal error: "))
}

// end stops the program for good, whatever state it is in.
func (p *Program) end() {
	_ = p.Signal(syscall.SIGCONT)
	ctx, cancel := context.WithTimeout(context.Background(), stopPatience)
	defer cancel()
	_ = p.Kill(ctx)
}
