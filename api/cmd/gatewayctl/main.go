// Command gatewayctl is the command-line tool for operators and tenants. Operators create
// companies and keys, diagnose and pause emails, retry dead letters and check the installation
// (gatewayctl doctor); tenants send emails and mailings.
//
// Operator commands use the database named by DATABASE_URL, tenant commands the HTTP API at
// API_URL with API_KEY. gatewayctl --help and api/README.md list all commands. The exit code is
// 0 on success, 1 on failure or if a check failed, and 2 on invalid usage.
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

// login returns the login name of the user, behind sudo that of the original user.
func login() string {
	var name string
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	return cmp.Or(os.Getenv("SUDO_USER"), name, os.Getenv("USER"))
}
