// Command gatewayctl is for the people around the gateway. Operators make companies and
// keys with it, are told where an email is and why, hold back what waits, send again what
// was given up, and look after the whole (gatewayctl doctor); tenants send with it.
//
// Operators' commands use the database named by DATABASE_URL, tenants' the HTTP API at
// API_URL with API_KEY. gatewayctl --help lists them all; api/README.md does too. It exits
// with 0 when the command did what it says, with 1 when it could not or what it looked at
// is not well, and with 2 when it was not understood.
package main

import (
	"cmp"
	"context"
	"os"
	"os/signal"
	"os/user"
	"syscall"

	"email-gateway/api/internal/ctl"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := ctl.Program{
		Environ: os.Environ(), Login: login(), Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
	}.Run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

// login is who is typing: behind sudo, who was it before.
func login() string {
	var name string
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	return cmp.Or(os.Getenv("SUDO_USER"), name, os.Getenv("USER"))
}
