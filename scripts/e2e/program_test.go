package e2e_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"email-gateway/scripts/local"
	"email-gateway/scripts/local/programs"
)

// program is one running process of the system.
type program struct {
	process *programs.Program

	t      *testing.T
	name   string
	addr   string      // where it listens
	log    string      // the file of its output
	killed atomic.Bool // by the test: then its exit code says nothing
}

// raceExit shortens the pause of a second with which a program that has the race detector exits.
const raceExit = "atexit_sleep_ms=50"

// startProgram runs a built program and returns when it listens. Its settings are env with the changes.
func startProgram(t *testing.T, name string, env map[string]string, changes ...map[string]string) *program {
	t.Helper()
	return startProgramAt(t, filepath.Join(binDir, name), env, changes...)
}

func startProgramAt(t *testing.T, path string, env map[string]string, changes ...map[string]string) *program {
	t.Helper()
	p := &program{t: t, name: filepath.Base(path), log: filepath.Join(t.TempDir(), "log")}
	settings := map[string]string{"GORACE": "halt_on_error=1 " + raceExit, "METRICS_ADDR": "127.0.0.1:0"}
	for _, more := range append([]map[string]string{env}, changes...) {
		maps.Copy(settings, more)
	}
	address := strings.ToUpper(p.name) + "_ADDR"
	if settings[address] == "127.0.0.1:0" {
		settings[address] = freeAddress(t) // its successor may have to listen there
	}
	p.start(programs.Spec{Path: path, Environ: programs.Environ(settings)})
	listens := p.listens
	if settings["LOG_LEVEL"] == "error" {
		p.addr, listens = settings[address], p.lives
	}
	if err := p.process.Await(context.Background(), stallLimit, listens); err != nil {
		t.Fatalf("%v\n%s", err, p.tail())
	}
	return p
}

// startOther runs another program, until the test ends.
func startOther(t *testing.T, environ []string, path string, args ...string) *program {
	t.Helper()
	p := &program{t: t, name: filepath.Base(path), log: filepath.Join(t.TempDir(), "log")}
	p.killed.Store(true) // whatever SIGTERM makes of it
	p.start(programs.Spec{Path: path, Args: args, Environ: environ})
	return p
}

// awaitOutput waits until the program has printed what matches.
func (p *program) awaitOutput(limit time.Duration, pattern *regexp.Regexp) (match []string) {
	p.t.Helper()
	if err := p.process.Await(context.Background(), limit, func(context.Context) error {
		if match = pattern.FindStringSubmatch(p.logged()); match == nil {
			return fmt.Errorf("it has not printed %s", pattern)
		}
		return nil
	}); err != nil {
		p.t.Fatalf("%s: %v\n%s", p.name, err, p.tail())
	}
	return match
}

// start starts the process, and stops it when the test ends.
func (p *program) start(spec programs.Spec) {
	p.t.Helper()
	spec.Log = p.log
	var err error
	if p.process, err = programs.Start(context.Background(), spec); err != nil { // the test's context has ended during clean-up
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		p.stop()
		if p.t.Failed() {
			p.t.Logf("last lines of %s:\n%s", p.name, p.tail())
		}
	})
}

// listens returns an error if the program has not logged where it listens. Its port alone does not show that: it may be in
// another network namespace, or have exited since, as a crash point makes it.
func (p *program) listens(context.Context) error {
	if p.addr = p.listener(false); p.addr == "" {
		return errors.New("it has not logged that it listens")
	}
	return nil
}

// lives returns an error if the program does not answer at its address: at LOG_LEVEL=error it does not log that it listens.
func (p *program) lives(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.addr+"/livez", nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	return answer.Body.Close()
}

// listener returns the address in the log of the program's listener, or of its second one for metrics.
func (p *program) listener(metrics bool) string {
	for line := range strings.Lines(p.logged()) {
		var entry struct {
			Message string
			Context struct{ Address, Listener string }
		}
		if json.Unmarshal([]byte(line), &entry) == nil && entry.Message == "listening" && (entry.Context.Listener == "metrics") == metrics {
			return entry.Context.Address
		}
	}
	return ""
}

// metricsURL returns the URL of the program's metrics.
func (p *program) metricsURL() string {
	return "http://" + cmp.Or(p.listener(true), p.addr) + "/metrics"
}

// stop sends SIGTERM and checks that the program exits without an error. Stopping a program that has ended is
// allowed.
func (p *program) stop() {
	p.signal(syscall.SIGTERM)
	p.await()
	if err := p.process.Err(); err != nil && !p.killed.Load() {
		p.t.Errorf("%s: %v", p.name, err)
	}
}

// kill ends the program with SIGKILL.
func (p *program) kill() {
	p.killed.Store(true)
	p.signal(syscall.SIGKILL)
	p.await()
}

// wasKilled reports whether SIGKILL ended the program.
func (p *program) wasKilled() bool {
	var exit *exec.ExitError
	return errors.As(p.process.Err(), &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL
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
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.process.PID()))
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
	if err := p.process.Signal(s); err != nil {
		p.t.Error(err)
	}
}

// await waits until the program has exited.
func (p *program) await() {
	if err := p.process.Wait(context.Background(), programs.StopTimeout); err != nil {
		p.t.Errorf("%v\n%s", err, p.tail())
	}
}

// peakMemory is the most memory that the process has had (bytes).
func (p *program) peakMemory() int64 {
	p.t.Helper()
	peak, err := local.PeakMemory(p.process.PID())
	if err != nil || peak == 0 {
		p.t.Fatalf("the peak of %s is %d: %v", p.name, peak, err)
	}
	return peak
}

func (p *program) tail() string { return lastLines(p.logged(), 30) }

func (p *program) logged() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		p.t.Error(err)
	}
	return string(text)
}

func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
