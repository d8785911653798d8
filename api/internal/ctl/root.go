package ctl

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"email-gateway/api/internal/ctl/audit"
	"email-gateway/api/internal/ctl/breaker"
	"email-gateway/api/internal/ctl/command"
	"email-gateway/api/internal/ctl/company"
	"email-gateway/api/internal/ctl/dlq"
	"email-gateway/api/internal/ctl/doctor"
	"email-gateway/api/internal/ctl/domain"
	"email-gateway/api/internal/ctl/email"
	"email-gateway/api/internal/ctl/encryption"
	"email-gateway/api/internal/ctl/events"
	"email-gateway/api/internal/ctl/file"
	"email-gateway/api/internal/ctl/installation"
	"email-gateway/api/internal/ctl/key"
	"email-gateway/api/internal/ctl/lane"
	"email-gateway/api/internal/ctl/mailing"
	"email-gateway/api/internal/ctl/person"
	"email-gateway/api/internal/ctl/program"
	"email-gateway/api/internal/ctl/suppression"
	"email-gateway/api/internal/ctl/template"
	"email-gateway/api/internal/ctl/tenant"
	"email-gateway/api/internal/ctl/usage"
	"email-gateway/api/internal/ctl/webhook"
	"email-gateway/shared/service"
)

// Exit codes.
const (
	ExitOK     = 0 // success
	ExitFailed = 1 // the command failed, or reports a failure
	ExitUsage  = 2 // invalid usage: nothing was read or changed
)

// Program is gatewayctl with its environment.
type Program command.Process

// Run executes the command that args name and returns the exit code.
func (p Program) Run(ctx context.Context, args []string) int {
	c := &command.Invocation{Process: command.Process(p)}
	root := rootCommand(c)
	root.SetArgs(args)
	root.SetOut(p.Stdout)
	root.SetErr(p.Stderr)
	refuseUnknownShells(root)
	executed, err := root.ExecuteContextC(ctx)
	if err == nil {
		return ExitOK
	}
	fmt.Fprintf(p.Stderr, "gatewayctl: %s\n", rewriteFlagError(strings.TrimSpace(err.Error())))
	var misused *command.UsageError
	if c.Parsed && !errors.As(err, &misused) {
		return ExitFailed
	}
	fmt.Fprintf(p.Stderr, "See %s --help.\n", executed.CommandPath())
	return ExitUsage
}

func rootCommand(c *command.Invocation) *cobra.Command {
	root := command.Group("gatewayctl", "Operate the email gateway, and send with it", `gatewayctl is the command-line tool for operators and tenants of the gateway.

Operators use the database named by DATABASE_URL: companies, sender domains, API keys, the
status of emails, paused lanes, dead letters. Commands change only rows, so changes take
effect within seconds, without a restart. Every change writes an audit entry with the operator
(--operator, GATEWAY_OPERATOR, or the login), the action, the time and the --reason: see
gatewayctl audit list.

Tenants use the HTTP API at API_URL (default `+tenant.DefaultURL+`) with API_KEY: mailings,
single emails, suppressions.

Companies are given by id or exact name. With --json, every command prints one JSON object
instead of text.

Exit codes: 0 success, 1 failure (or a check that failed), 2 invalid usage.`,
		`  gatewayctl doctor
  gatewayctl company create --name Acme --default-from 'Acme <billing@acme.example>'
  gatewayctl key create --company Acme --scopes emails:send,emails:read
  gatewayctl mailing create --file clientes.csv --subject 'Olá, {{nome}}' --html-file natal.html --watch
  gatewayctl email explain 01a1fe26-7c3d-7e4f-8a5b-6c7d8e9f0a1b`)
	root.PersistentFlags().BoolVar(&c.JSON, "json", false, "print one JSON object, for programs")
	root.PersistentFlags().StringVar(&c.Operator, "operator", "", "your `NAME` for the audit log; default: GATEWAY_OPERATOR, else your login")
	root.Version = service.Version()
	root.SetVersionTemplate("gatewayctl {{.Version}}\n") // the same format as the other programs
	root.Flags().Bool("version", false, "print the version")
	root.SilenceErrors, root.SilenceUsage = true, true
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error { return command.RefuseEmpty(cmd) }
	root.SetUsageTemplate(usageTemplate)
	root.AddCommand(
		mailing.Command(c), email.Command(c), file.Command(c), template.Command(c), suppression.Command(c), webhook.Command(c), events.Command(c), usage.Command(c),
		company.Command(c), domain.Command(c), key.Command(c), program.Command(c), lane.Command(c), breaker.Command(c), dlq.Command(c), person.Command(c), encryption.Command(c), installation.Command(c), audit.Command(c), doctor.Command(c),
	)
	return root
}

// refuseUnknownShells makes cobra's completion command reject unknown shells, as the groups
// here do. It uses root's current output.
func refuseUnknownShells(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	like := command.Group("completion", "", "", "")
	for _, cmd := range root.Commands() {
		if cmd.Name() == like.Name() {
			cmd.Args, cmd.RunE = like.Args, like.RunE
		}
	}
}

// usageTemplate is cobra's, without the line that presents a group as a runnable command.
const usageTemplate = `Usage:{{if .HasAvailableSubCommands}}
  {{.CommandPath}} COMMAND{{else}}
  {{.UseLine}}{{end}}{{if .HasExample}}

Examples:
{{.Example}}{{end}}{{if .HasAvailableSubCommands}}

Commands:{{range .Commands}}{{if (or .IsAvailableCommand (eq .Name "help"))}}
  {{rpad .Name .NamePadding }} {{.Short}}{{end}}{{end}}{{end}}{{if .HasAvailableLocalFlags}}

Flags:
{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}{{end}}{{if .HasAvailableInheritedFlags}}

Flags of every command:
{{.InheritedFlags.FlagUsages | trimTrailingWhitespaces}}{{end}}{{if .HasAvailableSubCommands}}

Run {{.CommandPath}} COMMAND --help for details of a command.{{end}}
`
