package e2e_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"email-gateway/scripts/local/programs"
	"email-gateway/shared/crashpoint"
)

// crashPrograms builds the programs with crash points, once, and returns their directory.
var crashPrograms = sync.OnceValues(func() (dir string, err error) {
	dir = filepath.Join(filepath.Dir(binDir), "crashpoints")
	return dir, programs.Build(context.Background(), rootDir, dir, "-tags", "crashpoints", "./api/cmd/api", "./worker/cmd/dispatcher", "./worker/cmd/worker")
})

// startCrashing starts a program that kills itself when it reaches the point for the nth time.
func (s *system) startCrashing(name string, at crashpoint.Point, nth int, change map[string]string) *program {
	s.t.Helper()
	dir, err := crashPrograms()
	if err != nil {
		s.t.Fatal(err)
	}
	p := startProgramAt(s.t, filepath.Join(dir, name), s.env, change, map[string]string{"CRASH_AT": fmt.Sprintf("%s:%d", at, nth)})
	p.killed.Store(true) // by the crash point
	return p
}

// reached reports whether the program has reached its crash point.
func (p *program) reached(at crashpoint.Point) bool {
	return strings.Contains(p.logged(), "crash point reached: "+string(at)+"\n")
}

// awaitCrash waits until the program has killed itself at the point.
func (p *program) awaitCrash(at crashpoint.Point) {
	p.t.Helper()
	select {
	case <-p.process.Exited:
	case <-time.After(stallLimit):
		p.t.Fatalf("%s does not reach %s\n%s", p.name, at, p.tail())
	}
	if !p.wasKilled() || !p.reached(at) {
		p.t.Fatalf("%v, want SIGKILL at %s\n%s", p.process.Err(), at, p.tail())
	}
}

// awaitFreeze waits until the program has stopped itself at the point.
func (p *program) awaitFreeze(at crashpoint.Point) {
	p.t.Helper()
	eventually(p.t, func() error {
		if !p.reached(at) {
			return fmt.Errorf("%s has not reached %s", p.name, at)
		}
		return p.running()
	})
}

// The released programs contain no crash points, and the tested ones do.
func TestCrashPoints_NotInRelease(t *testing.T) {
	t.Parallel()
	dir, err := crashPrograms()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"api", "dispatcher", "worker"} {
		released, err := os.ReadFile(filepath.Join(binDir, name))
		if err != nil {
			t.Fatal(err)
		}
		tested, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		traces := []string{"CRASH_AT", "CRASH_WITH"}
		for _, point := range crashpoint.Points() {
			traces = append(traces, string(point))
		}
		found := 0
		for _, trace := range traces {
			if strings.Contains(string(released), trace) {
				t.Errorf("%s holds %q", name, trace)
			}
			if strings.Contains(string(tested), trace) {
				found++
			}
		}
		if found != len(traces) {
			t.Errorf("%s with crash points holds %d of %d names", name, found, len(traces))
		}
	}
}
