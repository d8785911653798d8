package service

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// Program is one of the gateway's programs.
type Program struct {
	Name string
	// Addr returns the address of the listener that -healthcheck calls.
	Addr func(environ []string) (string, error)
	// Serve runs the program until ctx ends, and writes its log to logs.
	Serve func(ctx context.Context, environ []string, logs io.Writer) error
}

// Main runs the program until SIGINT or SIGTERM, and returns its exit code. The log is written to stdout, the error of a
// program that fails to stderr.
func Main(p Program) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	SetMemory()
	if err := p.Run(ctx, os.Args[1:], os.Environ(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, p.Name+":", err)
		return 1
	}
	return 0
}

// Run runs the program, or does what a flag in args requests instead.
func (p Program) Run(ctx context.Context, args, environ []string, out io.Writer) error {
	flags := flag.NewFlagSet(p.Name, flag.ContinueOnError)
	healthcheck := flags.Bool("healthcheck", false, "check that the running "+p.Name+" is alive, and exit with 0 or 1")
	version := flags.Bool("version", false, "print the version and exit")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return nil
	case err != nil:
		return err
	case *version:
		_, err := fmt.Fprintln(out, p.Name, Version())
		return err
	case *healthcheck:
		addr, err := p.Addr(environ)
		if err != nil {
			return err
		}
		return Healthcheck(ctx, addr)
	}
	return p.Serve(ctx, environ, out)
}
