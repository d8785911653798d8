package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
)

// suite runs the tests of packages, and then those that failed.
type suite struct {
	flags []string
	out   io.Writer
	again []failedTest
	final bool // a package failed and is not repeated
}

// failedTest is a test that failed in the first run.
type failedTest struct{ pkg, name string }

func (s *suite) run(ctx context.Context, packages []string) (passed bool, err error) {
	passed, err = goTest(ctx, slices.Concat(s.flags, packages), s.out, s.first)
	if err != nil {
		return false, err
	}
	passed = passed || len(s.again) > 0 && !s.final
	for _, t := range s.again {
		alone, err := s.repeat(ctx, t)
		if err != nil {
			return false, err
		}
		passed = passed && alone
	}
	if !passed {
		fmt.Fprintln(s.out, "FAIL") // the last line of go test
	}
	return passed, nil
}

// first prints a package, or shows which of its tests run again when all packages are done.
func (s *suite) first(o *outcome) {
	if !o.failed || !o.repeatable() {
		s.final = s.final || o.failed
		s.print(o)
		return
	}
	for _, t := range o.tests {
		s.again = append(s.again, failedTest{o.name, t.name})
		fmt.Fprintf(s.out, "%s of %s failed and runs again at the end, alone:\n", t.name, o.name)
		for _, line := range t.lines {
			fmt.Fprintf(s.out, "  | %s", line)
		}
	}
}

// print prints a package as go test does.
func (s *suite) print(o *outcome) {
	for _, t := range o.tests {
		fmt.Fprint(s.out, strings.Join(t.lines, ""))
	}
	for _, line := range o.closing {
		if line != "PASS\n" {
			fmt.Fprint(s.out, line)
		}
	}
}

// repeat runs one test alone.
func (s *suite) repeat(ctx context.Context, t failedTest) (passed bool, err error) {
	ran := 0
	passed, err = goTest(ctx, slices.Concat(s.flags, []string{"-run", "^" + t.name + "$", t.pkg}), s.out, func(o *outcome) {
		ran += o.passed
		s.print(o)
	})
	if passed = passed && ran == 1; passed {
		fmt.Fprintf(s.out, "%s of %s failed once and passed alone: it is flaky and has to be mended\n", t.name, t.pkg)
	}
	return passed, err
}
