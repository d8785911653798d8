package company

import (
	"context"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"email-gateway/api/internal/ctl/command"
	"email-gateway/api/internal/ctl/operator"
	"email-gateway/api/internal/ctl/output"
	"email-gateway/shared/store"
	"email-gateway/shared/store/audit"
	"email-gateway/shared/store/tenant"
)

// view returns what a command shows of a company.
type view func(ctx context.Context, s *store.Store, company tenant.Company) (output.Result, error)

// show returns the RunE of a command that shows the company that its first argument names.
func show(c *command.Invocation, of view) func(*cobra.Command, []string) error {
	return operator.Run(c, func(ctx context.Context, s *store.Store, args []string) (output.Result, error) {
		company, err := operator.FindCompany(ctx, s, args[0])
		if err != nil {
			return nil, err
		}
		return of(ctx, s, company)
	})
}

// settings are the settings of a company that one command sets, and shows afterwards.
type settings[T any] struct {
	usage string // says what an argument is, with an example
	parse func(arguments []string) (T, error)
	set   func(ctx context.Context, s *store.Store, by audit.Operator, company uuid.UUID, values T) error
	show  view
}

// setCommand completes cmd, whose arguments are a company and at least one NAME=VALUE.
func (v settings[T]) setCommand(c *command.Invocation, cmd *cobra.Command) *cobra.Command {
	var reason string
	cmd.Args = func(_ *cobra.Command, args []string) error {
		if len(args) < 2 {
			return command.Usagef("give a COMPANY and at least one %s", v.usage)
		}
		return nil
	}
	cmd.ValidArgsFunction = operator.CompleteCompanies(c)
	cmd.RunE = operator.Run(c, func(ctx context.Context, s *store.Store, args []string) (output.Result, error) {
		values, err := v.parse(args[1:])
		if err != nil {
			return nil, err
		}
		company, err := operator.FindCompany(ctx, s, args[0])
		if err != nil {
			return nil, err
		}
		by, err := operator.Identity(c, reason)
		if err != nil {
			return nil, err
		}
		if err := v.set(ctx, s, by, company.ID, values); err != nil {
			return nil, err
		}
		return v.show(ctx, s, company)
	})
	return operator.ReasonFlag(cmd, &reason, false)
}
