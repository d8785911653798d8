// Package ctl implements gatewayctl, the command-line tool for operators and tenants: one file
// per noun (company, domain, key, email, mailing, lane, gate), or per command of a noun with
// many. Operator commands read and change rows through shared/store and never touch a queue;
// tenant commands call the HTTP API. api/cmd/gatewayctl runs it.
package ctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"email-gateway/shared/environment"
	"email-gateway/shared/service"
	"email-gateway/shared/store"
)

// Exit codes.
const (
	ExitOK     = 0 // success
	ExitFailed = 1 // the command failed, or reports a failure
	ExitUsage  = 2 // invalid usage: nothing was read or changed
)

// Program is gatewayctl with its environment.
type Program process

// process is what a command gets from the process that runs it.
type process struct {
	Environ []string // "NAME=value" lines
	Login   string   // login name of the user; "" = unknown
	Stdin   io.Reader
	Stdout  io.Writer
	Stderr  io.Writer
}

// Getenv returns the value of a variable, "" if it is not set.
func (p process) Getenv(name string) string {
	for _, line := range slices.Backward(p.Environ) { // the last one wins
		if value, found := strings.CutPrefix(line, name+"="); found {
			return value
		}
	}
	return ""
}

// Run executes the command that args name and returns the exit code.
func (p Program) Run(ctx context.Context, args []string) int {
	c := &control{process: process(p)}
	root := c.root()
	root.SetArgs(args)
	root.SetOut(p.Stdout)
	root.SetErr(p.Stderr)
	refuseUnknownShells(root)
	executed, err := root.ExecuteContextC(ctx)
	if err == nil {
		return ExitOK
	}
	fmt.Fprintf(p.Stderr, "gatewayctl: %s\n", rewriteFlagError(strings.TrimSpace(err.Error())))
	var misused *usageError
	if c.parsed && !errors.As(err, &misused) {
		return ExitFailed
	}
	fmt.Fprintf(p.Stderr, "See %s --help.\n", executed.CommandPath())
	return ExitUsage
}

// control is shared by all commands of one run.
type control struct {
	process
	json     bool
	operator string // --operator
	parsed   bool   // cobra has parsed the command line; later errors are the command's own
}

func (c *control) root() *cobra.Command {
	root := group("gatewayctl", "Operate the email gateway, and send with it", `gatewayctl is the command-line tool for operators and tenants of the gateway.

Operators use the database named by DATABASE_URL: companies, sender domains, API keys, the
status of emails, paused lanes, dead letters. Commands change only rows, so changes take
effect within seconds, without a restart. Every change writes an audit entry with the operator
(--operator, GATEWAY_OPERATOR, or the login), the action, the time and the --reason: see
gatewayctl audit list.

Tenants use the HTTP API at API_URL (default `+defaultAPI+`) with API_KEY: mailings,
single emails, suppressions.

Companies are given by id or exact name. With --json, every command prints one JSON object
instead of text.

Exit codes: 0 success, 1 failure (or a check that failed), 2 invalid usage.`,
		`  gatewayctl doctor
  gatewayctl company create --name Acme --default-from 'Acme <billing@acme.example>'
  gatewayctl key create --company Acme --scopes emails:send,emails:read
  gatewayctl mailing create --file clientes.csv --subject 'Olá, {{nome}}' --html-file natal.html --watch
  gatewayctl email explain 01a1fe26-7c3d-7e4f-8a5b-6c7d8e9f0a1b`)
	root.PersistentFlags().BoolVar(&c.json, "json", false, "print one JSON object, for programs")
	root.PersistentFlags().StringVar(&c.operator, "operator", "", "your `NAME` for the audit log; default: GATEWAY_OPERATOR, else your login")
	root.Version = service.Version()
	root.SetVersionTemplate("gatewayctl {{.Version}}\n") // the same format as the other programs
	root.Flags().Bool("version", false, "print the version")
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetUsageTemplate(usageTemplate)
	root.AddCommand(
		c.mailing(), c.email(), c.file(), c.template(), c.suppression(), c.webhook(), c.events(), c.usage(),
		c.company(), c.domain(), c.key(), c.program(), c.lane(), c.gate(), c.deadLetter(), c.person(), c.encryption(), c.audit(), c.doctor(),
	)
	return root
}

// refuseUnknownShells makes cobra's completion command reject unknown shells, as the groups
// here do. It uses root's current output.
func refuseUnknownShells(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	like := group("completion", "", "", "")
	for _, cmd := range root.Commands() {
		if cmd.Name() == like.Name() {
			cmd.Args, cmd.RunE = like.Args, like.RunE
		}
	}
}

// group returns a command that only holds others. Cobra's default for an unknown subcommand
// is the help text and exit code 0.
func group(name, short, long, example string) *cobra.Command {
	return &cobra.Command{
		Use: name, Short: short, Long: long, Example: example,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			message := fmt.Sprintf("unknown command %q for %q", args[0], cmd.CommandPath())
			if similar := cmd.SuggestionsFor(args[0]); len(similar) > 0 {
				message += ": did you mean " + strings.Join(similar, " or ") + "?"
			}
			return errors.New(message)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			fmt.Fprint(cmd.ErrOrStderr(), cmd.Long, "\n\n", cmd.UsageString(), "\n")
			return usagef("%s needs a command", cmd.CommandPath())
		},
		SuggestionsMinimumDistance: 2,
	}
}

// run returns the RunE of an operator's command: do gets an open store, and its answer is
// printed.
func (c *control) run(do func(ctx context.Context, s *store.Store, args []string) (answer, error)) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		c.parsed = true
		databaseURL := c.Getenv("DATABASE_URL")
		if databaseURL == "" {
			return noDatabase()
		}
		var f environment.Faults
		f.RefusePublicSecrets(c.Environ)
		if err := f.Err(); err != nil {
			return usagef("%v", err)
		}
		// A command runs its queries one after the other, so one connection is enough.
		s, err := store.Open(cmd.Context(), databaseURL, c.storeOptions(1))
		if err != nil {
			return fmt.Errorf("cannot use the database that DATABASE_URL names: %w", advise(err))
		}
		defer s.Close()
		found, err := do(cmd.Context(), s, args)
		if err != nil {
			return advise(err)
		}
		return c.print(found)
	}
}

// storeOptions returns the options of a store with conns connections.
func (c *control) storeOptions(conns int) store.Options {
	pooled, _ := strconv.ParseBool(c.Getenv("DATABASE_POOLED"))
	return store.Options{MaxConns: conns, Pooled: pooled}
}

func noDatabase() error {
	return usagef("DATABASE_URL is not set: give the gateway's database, as in postgres://gateway@127.0.0.1:5432/gateway")
}

// advise appends to the store's errors what an operator can do.
func advise(err error) error {
	switch text := strings.ReplaceAll(err.Error(), "\n", ": "); {
	case errors.Is(err, store.ErrNotMigrated):
		return fmt.Errorf("%s (run `migrate up` with the same DATABASE_URL)", text)
	case errors.Is(err, store.ErrUnavailable):
		return fmt.Errorf("%s (is Postgres running? nothing was changed)", text)
	case errors.Is(err, store.ErrUnknownOutcome):
		return fmt.Errorf("%s (check before retrying: the change may have been committed)", text)
	}
	return err
}

// usageError is an invalid command line that the command itself detected.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

func usagef(format string, args ...any) error {
	return &usageError{fmt.Sprintf(format, args...)}
}

// exactArgs requires exactly the named arguments.
func exactArgs(names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return fmt.Errorf("%s is missing", names[len(args)])
		case len(args) > len(names):
			return fmt.Errorf("%s too many", plural(len(args)-len(names), "argument", "arguments"))
		}
		return nil
	}
}

// findCompany finds a company by id or exact name.
func findCompany(ctx context.Context, s *store.Store, idOrName string) (store.Company, error) {
	found, err := s.FindCompany(ctx, idOrName)
	if errors.Is(err, store.ErrNotFound) {
		return store.Company{}, fmt.Errorf("company %q not found: run `gatewayctl company list` to see all names and ids", idOrName)
	}
	return found, err
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
