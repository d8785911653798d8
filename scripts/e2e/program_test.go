package e2e_test

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// program is one running process of the system.
type program struct {
	t      *testing.T
	name   string
	cmd    *exec.Cmd
	addr   string // where it listens
	own    string // where its metrics are, if not there too
	exited chan struct{}
	err    error // how it ended, once exited is closed
	mu     sync.Mutex
	log    bytes.Buffer
	killed bool // by the test: then its exit code says nothing
}

// raceExit shortens the pause of a second with which a program that has the race detector exits.
const raceExit = "atexit_sleep_ms=50"

// startProgram runs a built program and returns when it listens.
func startProgram(t *testing.T, name string, env map[string]string) *program {
	t.Helper()
	return startProgramAt(t, filepath.Join(binDir, name), env)
}

func startProgramAt(t *testing.T, path string, env map[string]string) *program {
	t.Helper()
	name := filepath.Base(path)
	p := &program{t: t, name: name, cmd: exec.Command(path), exited: make(chan struct{})}
	env = maps.Clone(env)
	if address := strings.ToUpper(name) + "_ADDR"; env[address] == "127.0.0.1:0" {
		env[address] = freeAddress(t) // its successor may have to listen there
	}
	p.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "GORACE=halt_on_error=1 " + raceExit, "METRICS_ADDR=127.0.0.1:0"}
	for key, value := range env {
		p.cmd.Env = append(p.cmd.Env, key+"="+value)
	}
	out, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.cmd.Stdout = p.cmd.Stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // no orphan if the test binary dies
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", name, err)
	}
	listening := make(chan string, 4)
	go func() {
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			p.note(lines.Bytes(), listening)
		}
		p.err = p.cmd.Wait()
		close(p.exited)
	}()
	t.Cleanup(p.stop)
	select {
	case p.addr = <-listening:
	case <-p.exited:
		select {
		case p.addr = <-listening: // and then exited, as a crash point makes it
		default:
			t.Fatalf("%s exited at once: %v\n%s", name, p.err, p.tail())
		}
	case <-time.After(stallLimit):
		t.Fatalf("%s does not listen\n%s", name, p.tail())
	}
	return p
}

func (p *program) note(line []byte, listening chan<- string) {
	p.mu.Lock()
	p.log.Write(line)
	p.log.WriteByte('\n')
	p.mu.Unlock()
	var entry struct {
		Message string
		Context struct{ Address, Listener string }
	}
	if json.Unmarshal(line, &entry) != nil || entry.Message != "listening" {
		return
	}
	if entry.Context.Listener == "metrics" {
		p.mu.Lock()
		p.own = entry.Context.Address
		p.mu.Unlock()
	} else {
		select {
		case listening <- entry.Context.Address:
		default:
		}
	}
}

// metricsURL returns the URL of the program's metrics.
func (p *program) metricsURL() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return "http://" + cmp.Or(p.own, p.addr) + "/metrics"
}

// stop sends SIGTERM and checks that the program exits without an error. Stopping a program that has ended is
// allowed.
func (p *program) stop() {
	p.signal(syscall.SIGTERM)
	p.await(stopLimit)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil && !p.killed {
		p.t.Errorf("%s ended with %v", p.name, p.err)
	}
	if p.t.Failed() && p.log.Len() > 0 {
		p.t.Logf("last lines of %s:\n%s", p.name, lastLines(p.log.String(), 30))
	}
	p.log.Reset() // logged once
}

// kill ends the program with SIGKILL.
func (p *program) kill() {
	p.mu.Lock()
	p.killed = true
	p.mu.Unlock()
	p.signal(syscall.SIGKILL)
	p.await(stallLimit)
}

// freeze stops the program with SIGSTOP. Its threads continue until each has handled the signal, which takes long on a busy
// machine.
func (p *program) freeze() {
	p.t.Helper()
	p.signal(syscall.SIGSTOP)
	eventually(p.t, p.running)
}

// running returns an error if a thread of the program has not stopped (proc(5): T means stopped).
func (p *program) running() error {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.cmd.Process.Pid))
	if err != nil {
		return err
	}
	if len(threads) == 0 {
		return fmt.Errorf("%s has ended", p.name)
	}
	for _, path := range threads {
		stat, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if _, state, _ := strings.Cut(string(stat), ") "); !strings.HasPrefix(state, "T") {
			return fmt.Errorf("%s has a thread in state %.1s, want it stopped", p.name, state)
		}
	}
	return nil
}

func (p *program) signal(s os.Signal) {
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Errorf("signal %s: %v", p.name, err)
	}
}

// stopLimit is the longest stop grace of docker-compose.yml, 60 s, and 10 s for the process to exit.
const stopLimit = 70 * time.Second

func (p *program) await(limit time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	select {
	case <-p.exited:
	case <-ctx.Done():
		p.t.Errorf("%s is still running after %s\n%s", p.name, limit, p.tail())
		_ = p.cmd.Process.Kill()
		<-p.exited
	}
}

func (p *program) tail() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return lastLines(p.log.String(), 30)
}

func (p *program) logged() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
