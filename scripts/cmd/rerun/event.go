package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
)

// event is a line of go test -json, see go doc test2json.
type event struct {
	Action, Package, Test, Output string
}

// outcome is what go test reports about one package.
type outcome struct {
	name    string
	failed  bool
	tests   []*test  // that failed or did not end, in the order in which they began
	passed  int      // tests
	closing []string // output of no test: "ok", "FAIL", or why it did not run
}

// test is a root test with its subtests.
type test struct {
	name   string
	lines  []string
	result string // pass, fail, skip; "" = it did not end
}

// repeatable reports whether a second run may disprove the failure. A test that did not end panicked or ran into the time
// limit, and then other tests of the package may not have run. A data race is a fault however rarely it is seen.
func (o *outcome) repeatable() bool {
	lines := slices.Clone(o.closing)
	for _, t := range o.tests {
		if t.result == "" {
			return false
		}
		lines = append(lines, t.lines...)
	}
	return len(o.tests) > 0 && !slices.ContainsFunc(lines, func(line string) bool {
		return strings.HasPrefix(line, "panic: ") || strings.Contains(line, "WARNING: DATA RACE")
	})
}

// goTest runs go test -json, calls done for each package when it ends, and returns go test's own result.
func goTest(ctx context.Context, args []string, out io.Writer, done func(*outcome)) (passed bool, err error) {
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-json"}, args...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.Stderr = os.Stderr
	events, err := cmd.StdoutPipe()
	if err != nil {
		return false, err
	}
	if err := cmd.Start(); err != nil {
		return false, err
	}
	packages := map[string]*outcome{}
	lines := bufio.NewReader(events)
	for {
		line, err := lines.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 {
			read(line, packages, out, done)
		}
		if err != nil {
			break
		}
	}
	err = cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 1 { // its output says why
		return false, nil
	}
	return err == nil, err
}

// read handles one line. What is not JSON, such as an unknown flag, is printed.
func read(line []byte, packages map[string]*outcome, out io.Writer, done func(*outcome)) {
	var e event
	if json.Unmarshal(line, &e) != nil || e.Action == "build-output" {
		if e.Output == "" {
			e.Output = string(line)
		}
		fmt.Fprint(out, e.Output)
		return
	}
	if e.Package == "" {
		return
	}
	p := packages[e.Package]
	if p == nil {
		p = &outcome{name: e.Package}
		packages[e.Package] = p
	}
	if e.Test != "" {
		p.add(e)
		return
	}
	switch e.Action {
	case "output":
		p.closing = append(p.closing, e.Output)
	case "pass", "fail", "skip":
		p.failed = e.Action == "fail"
		p.tests = slices.DeleteFunc(p.tests, func(t *test) bool { return t.result == "pass" || t.result == "skip" })
		done(p)
	}
}

func (o *outcome) add(e event) {
	root, sub, _ := strings.Cut(e.Test, "/")
	i := slices.IndexFunc(o.tests, func(t *test) bool { return t.name == root })
	if i < 0 {
		i = len(o.tests)
		o.tests = append(o.tests, &test{name: root})
	}
	switch t := o.tests[i]; e.Action {
	case "output":
		switch { // as without -json: results first, those of subtests indented
		case strings.HasPrefix(e.Output, "=== "):
		case strings.HasPrefix(e.Output, "--- ") && sub == "":
			t.lines = slices.Insert(t.lines, 0, e.Output)
		case strings.HasPrefix(e.Output, "--- "):
			t.lines = append(t.lines, "    "+e.Output)
		default:
			t.lines = append(t.lines, e.Output)
		}
	case "pass", "fail", "skip":
		if sub == "" {
			t.result = e.Action
		}
		if sub == "" && e.Action == "pass" {
			o.passed++
		}
		if e.Action == "pass" {
			t.lines = slices.DeleteFunc(t.lines, func(line string) bool {
				return strings.HasPrefix(strings.TrimSpace(line), "--- PASS: "+e.Test+" ")
			})
		}
		if sub == "" && e.Action != "fail" {
			t.lines = nil
		}
	}
}
