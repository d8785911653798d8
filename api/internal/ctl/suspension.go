package ctl

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"email-gateway/shared/store"
)

func (c *control) companySuspend() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "suspend COMPANY --reason REASON",
		Short: "Reject a company's requests and pause its emails",
		Long: `Rejects the company's requests and pauses its emails. Emails that a worker is already
processing are still sent. No email is lost: waiting emails are sent when the company is
resumed, except for those whose deadline has passed by then.

Suspending a suspended company changes the reason and keeps the time.`,
		Example: "  gatewayctl company suspend Acme --reason 'complaints above 0.1 %'",
		Args:    exactArgs("COMPANY"), ValidArgsFunction: c.completeCompanies(),
		RunE: c.run(func(ctx context.Context, s *store.Store, args []string) (answer, error) {
			by, err := c.operatorWithReason(reason)
			if err != nil {
				return nil, err
			}
			return changeSuspension(ctx, s, args[0], func(company store.Company) error {
				return s.SuspendCompany(ctx, by, company.ID)
			})
		}),
	}
	return auditReasonFlag(cmd, &reason, true)
}

func (c *control) companyResume() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:     "resume COMPANY",
		Short:   "Resume a suspended company",
		Long:    "Accepts the company's requests again and sends its waiting emails.",
		Example: "  gatewayctl company resume Acme",
		Args:    exactArgs("COMPANY"), ValidArgsFunction: c.completeCompanies(),
		RunE: c.run(func(ctx context.Context, s *store.Store, args []string) (answer, error) {
			by, err := c.operatorIdentity(reason)
			if err != nil {
				return nil, err
			}
			return changeSuspension(ctx, s, args[0], func(company store.Company) error {
				return s.ResumeCompany(ctx, by, company.ID)
			})
		}),
	}
	return auditReasonFlag(cmd, &reason, false)
}

type suspension struct {
	store.Company
	before store.Company
}

func changeSuspension(ctx context.Context, s *store.Store, given string, change func(store.Company) error) (answer, error) {
	before, err := findCompany(ctx, s, given)
	if err != nil {
		return nil, err
	}
	if err := change(before); err != nil {
		return nil, err
	}
	after, err := findCompany(ctx, s, before.ID.String())
	return suspension{Company: after, before: before}, err
}

func (v suspension) text(w io.Writer) {
	name := printable(v.Name)
	switch {
	case v.SuspendedAt != nil:
		fmt.Fprintf(w, "%s is suspended: %s.\n", name, printable(text(v.SuspendedReason)))
		switch {
		case v.before.SuspendedAt == nil:
		case text(v.before.SuspendedReason) == text(v.SuspendedReason):
			fmt.Fprintf(w, "It was already suspended, since %s.\n", stamp(*v.SuspendedAt))
		default:
			fmt.Fprintf(w, "It was already suspended, since %s; the reason was changed.\n", stamp(*v.SuspendedAt))
		}
		fmt.Fprintf(w, "Its requests are rejected and its emails wait. To resume it: gatewayctl company resume %s\n", shellWord(v.Name))
	case v.before.SuspendedAt != nil:
		fmt.Fprintf(w, "%s is active again. It had been %s.\nRequests may still be rejected for up to 5 s.\n", name, printable(companyState(v.before)))
	default:
		fmt.Fprintf(w, "%s is active. It was not suspended.\n", name)
	}
}
