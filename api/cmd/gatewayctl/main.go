// Command gatewayctl is for the operators of the gateway: companies, their sender
// domains and API keys, and where an email is and why.
//
// It talks to the database named by DATABASE_URL. gatewayctl --help lists its
// commands; it exits with 0 when the command did what it says, with 1 when it
// could not, and with 2 when it was not understood.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"email-gateway/api/internal/ctl"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := ctl.Program{Getenv: os.Getenv, Stdout: os.Stdout, Stderr: os.Stderr}.Run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}
