// Package ctl is gatewayctl, the command for people: one file per noun (company, domain,
// key, email, mailing, lane, gate), or per command of one that has many. What operators do
// reads and changes rows through shared/store and never touches a queue; what tenants do
// goes through the HTTP API. api/cmd/gatewayctl runs it.
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

// What a run ends with.
const (
	ExitOK     = 0 // the command did what it says
	ExitFailed = 1 // it could not, or what it looked at is not well
	ExitUsage  = 2 // it was not understood: nothing was read or changed
)

// Program is gatewayctl in its surroundings.
type Program struct {
	Environ []string // "NAME=value" lines
	Login   string   // who the operating system says is typing; "" = it does not know
	Stdin   io.Reader
	Stdout  io.Writer
	Stderr  io.Writer
}

// Getenv is the value of a variable, "" if it is not set.
func (p Program) Getenv(name string) string {
	for _, line := range slices.Backward(p.Environ) { // the last one counts
		if value, found := strings.CutPrefix(line, name+"="); found {
			return value
		}
	}
	return ""
}

// Run executes the command that args name and returns the exit code.
func (p Program) Run(ctx context.Context, args []string) int {
	c := &control{Program: p}
	root := c.root()
	root.SetArgs(args)
	root.SetOut(p.Stdout)
	root.SetErr(p.Stderr)
	refuseUnknownShells(root)
	executed, err := root.ExecuteContextC(ctx)
	if err == nil {
		return ExitOK
	}
	fmt.Fprintf(p.Stderr, "gatewayctl: %s\n", plainly(strings.TrimSpace(err.Error())))
	var misused *usageError
	if c.began && !errors.As(err, &misused) {
		return ExitFailed
	}
	fmt.Fprintf(p.Stderr, "See %s --help.\n", executed.CommandPath())
	return ExitUsage
}

// control is what all commands of one run share.
type control struct {
	Program
	json     bool
	operator string // --operator
	began    bool   // cobra has understood the command line; errors from here on are the command's own
}

func (c *control) root() *cobra.Command {
	root := group("gatewayctl", "Operate the email gateway, and send with it", `gatewayctl is for the people around the gateway.

Operators use the database named by DATABASE_URL: companies, their sender domains and API
keys, where an email is and why, what is held back, what was given up. It changes rows
only, so what it changes takes effect within seconds, without restarting anything. Every
change is written down with who (--operator, GATEWAY_OPERATOR, or the login), what, when
and why (--reason): gatewayctl audit list.

Tenants use the HTTP API at API_URL (`+defaultAPI+`, if it is not set) with API_KEY:
mailings, single emails, suppressions.

Companies are given by their id or their exact name. With --json every command prints one
JSON object instead of text.

Exit codes: 0 done, 1 could not, or what was looked at is not well, 2 not understood.`,
		`  gatewayctl doctor
  gatewayctl company create --name Acme --default-from 'Acme <billing@acme.example>'
  gatewayctl key create --company Acme --scopes emails:send,emails:read
  gatewayctl mailing create --file clientes.csv --subject 'Olá, {{nome}}' --html-file natal.html --watch
  gatewayctl email explain 01a1fe26-7c3d-7e4f-8a5b-6c7d8e9f0a1b`)
	root.PersistentFlags().BoolVar(&c.json, "json", false, "print one JSON object, for programs")
	root.PersistentFlags().StringVar(&c.operator, "operator", "", "`WHO` you are, for the audit; else GATEWAY_OPERATOR, else your login")
	root.Version = service.Version()
	root.SetVersionTemplate("gatewayctl {{.Version}}\n") // as the other programs say it
	root.Flags().Bool("version", false, "say which release this is")
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetUsageTemplate(usageTemplate)
	root.AddCommand(
		c.mailing(), c.email(), c.suppression(),
		c.company(), c.domain(), c.key(), c.program(), c.lane(), c.gate(), c.deadLetter(), c.person(), c.encryption(), c.audit(), c.doctor(),
	)
	return root
}

// refuseUnknownShells makes cobra's own command completion a group like ours. It writes to
// what root's output is by now.
func refuseUnknownShells(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	like := group("completion", "", "", "")
	for _, cmd := range root.Commands() {
		if cmd.Name() == like.Name() {
			cmd.Args, cmd.RunE = like.Args, like.RunE
		}
	}
}

// group makes a command that only holds others. Left to itself, cobra would answer
// an unknown one among them with the help text and success.
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

// run makes the body of a command: do is given an open store, and its answer is
// printed.
func (c *control) run(do func(ctx context.Context, s *store.Store, args []string) (answer, error)) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) (err error) {
		c.began = true
		databaseURL := c.Getenv("DATABASE_URL")
		if databaseURL == "" {
			return noDatabase()
		}
		var f environment.Faults
		f.RefusePublicSecrets(c.Environ)
		if err := f.Err(); err != nil {
			return usagef("%v", err)
		}
		// One command, one question after the other.
		s, err := store.Open(cmd.Context(), databaseURL, c.storeOptions(1))
		if err != nil {
			return fmt.Errorf("cannot use the database that DATABASE_URL names: %w", advise(err))
		}
		defer func() { err = errors.Join(err, s.Close()) }()
		found, err := do(cmd.Context(), s, args)
		if err != nil {
			return advise(err)
		}
		return c.print(found)
	}
}

// storeOptions are those of a store with so many connections.
func (p Program) storeOptions(conns int) store.Options {
	pooled, _ := strconv.ParseBool(p.Getenv("DATABASE_POOLED"))
	return store.Options{MaxConns: conns, Pooled: pooled}
}

func noDatabase() error {
	return usagef("DATABASE_URL is not set: it names the gateway's database, as in postgres://gateway@127.0.0.1:5432/gateway")
}

// advise adds to the store's errors what an operator can do about them.
func advise(err error) error {
	switch text := strings.ReplaceAll(err.Error(), "\n", ": "); {
	case errors.Is(err, store.ErrNotMigrated):
		return fmt.Errorf("%s (run `migrate up` with the same DATABASE_URL)", text)
	case errors.Is(err, store.ErrUnavailable):
		return fmt.Errorf("%s (is Postgres running? nothing was changed)", text)
	case errors.Is(err, store.ErrUnknownOutcome):
		return fmt.Errorf("%s (look before you try again: it may have been done)", text)
	}
	return err
}

// usageError is a command line that was not understood, found out by the command itself.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

func usagef(format string, args ...any) error {
	return &usageError{fmt.Sprintf(format, args...)}
}

// needs asks for exactly the named arguments.
func needs(names ...string) cobra.PositionalArgs {
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

// findCompany finds the company that an operator means.
func findCompany(ctx context.Context, s *store.Store, idOrName string) (store.Company, error) {
	found, err := s.FindCompany(ctx, idOrName)
	if errors.Is(err, store.ErrNotFound) {
		return store.Company{}, fmt.Errorf("there is no company %q: `gatewayctl company list` shows all names and ids", idOrName)
	}
	return found, err
}

// usageTemplate is cobra's, without the line that calls a group a command.
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

{{.CommandPath}} COMMAND --help tells more about one.{{end}}
`
