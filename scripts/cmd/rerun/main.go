// Command rerun runs go test and repeats tests that fail, once and one at a time:
//
//	go run ./scripts/cmd/rerun [go test flags] -- [packages]
//
// It prints what go test prints, except that the first failure of a test is shown under its own heading, and it fails only if
// a test fails again. A package that does not build, panics or times out fails at once, since not all of its tests have run.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	passed, err := run(ctx, os.Args[1:])
	stop()
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "rerun:", err)
		os.Exit(2)
	case !passed:
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) (passed bool, err error) {
	flags, packages := args, []string(nil)
	if i := slices.Index(args, "--"); i >= 0 {
		flags, packages = args[:i], args[i+1:]
	}
	s := &suite{flags: flags, out: os.Stdout}
	return s.run(ctx, packages)
}
