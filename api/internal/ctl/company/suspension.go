package company

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"email-gateway/api/internal/ctl/command"
	"email-gateway/api/internal/ctl/operator"
	"email-gateway/api/internal/ctl/output"
	"email-gateway/shared/store"
	"email-gateway/shared/store/tenant"
)

func suspendCommand(c *command.Invocation) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "suspend COMPANY --reason REASON",
		Short: "Reject a company's requests and pause its emails",
		Long: `Rejects the company's requests and pauses its emails. Emails that a worker is already
processing are still sent. No email is lost: waiting emails are sent when the company is
resumed, except for those whose deadline has passed by then.

Suspending a suspended company changes the reason and keeps the time.`,
		Example: "  gatewayctl company suspend Acme --reason 'complaints above 0.1 %'",
		Args:    command.ExactArgs("COMPANY"), ValidArgsFunction: operator.CompleteCompanies(c),
		RunE: operator.Run(c, func(ctx context.Context, s *store.Store, args []string) (output.Result, error) {
			by, err := operator.IdentityWithReason(c, reason)
			if err != nil {
				return nil, err
			}
			return changeSuspension(ctx, s, args[0], func(company tenant.Company) error {
				return s.SuspendCompany(ctx, by, company.ID)
			})
		}),
	}
	return operator.ReasonFlag(cmd, &reason, true)
}

func resumeCommand(c *command.Invocation) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:     "resume COMPANY",
		Short:   "Resume a suspended company",
		Long:    "Accepts the company's requests again and sends its waiting emails.",
		Example: "  gatewayctl company resume Acme",
		Args:    command.ExactArgs("COMPANY"), ValidArgsFunction: operator.CompleteCompanies(c),
		RunE: operator.Run(c, func(ctx context.Context, s *store.Store, args []string) (output.Result, error) {
			by, err := operator.Identity(c, reason)
			if err != nil {
				return nil, err
			}
			return changeSuspension(ctx, s, args[0], func(company tenant.Company) error {
				return s.ResumeCompany(ctx, by, company.ID)
			})
		}),
	}
	return operator.ReasonFlag(cmd, &reason, false)
}

type suspension struct {
	tenant.Company
	before tenant.Company
}

func changeSuspension(ctx context.Context, s *store.Store, given string, change func(tenant.Company) error) (output.Result, error) {
	before, err := operator.FindCompany(ctx, s, given)
	if err != nil {
		return nil, err
	}
	if err := change(before); err != nil {
		return nil, err
	}
	after, err := operator.FindCompany(ctx, s, before.ID.String())
	return suspension{Company: after, before: before}, err
}

func (v suspension) WriteText(w io.Writer) {
	name := output.Printable(v.Name)
	switch {
	case v.SuspendedAt != nil:
		fmt.Fprintf(w, "%s is suspended: %s.\n", name, output.Printable(output.Optional(v.SuspendedReason)))
		switch {
		case v.before.SuspendedAt == nil:
		case output.Optional(v.before.SuspendedReason) == output.Optional(v.SuspendedReason):
			fmt.Fprintf(w, "It was already suspended, since %s.\n", output.Timestamp(*v.SuspendedAt))
		default:
			fmt.Fprintf(w, "It was already suspended, since %s; the reason was changed.\n", output.Timestamp(*v.SuspendedAt))
		}
		fmt.Fprintf(w, "Its requests are rejected and its emails wait. To resume it: gatewayctl company resume %s\n", output.ShellWord(v.Name))
	case v.before.SuspendedAt != nil:
		fmt.Fprintf(w, "%s is active again. It had been %s.\nRequests may still be rejected for up to 5 s.\n", name, output.Printable(operator.CompanyState(v.before)))
	default:
		fmt.Fprintf(w, "%s is active. It was not suspended.\n", name)
	}
}
