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
		Short: "Refuse a company's requests and hold back its emails",
		Long: `Refuses the company's requests and holds back its emails from now on. An email that a
worker has in its hands already is still sent. Nothing is lost: what waits goes on
when the company is resumed, unless its deadline has passed by then.

Suspending a suspended company changes the reason and keeps the time.`,
		Example: "  gatewayctl company suspend Acme --reason 'complaints above 0.1 %'",
		Args:    needs("COMPANY"), ValidArgsFunction: c.completeCompanies,
		RunE: c.run(func(ctx context.Context, s *store.Store, args []string) (answer, error) {
			by, err := c.whoAndWhy(reason)
			if err != nil {
				return nil, err
			}
			return changeSuspension(ctx, s, args[0], func(company store.Company) error {
				return s.SuspendCompany(ctx, by, company.ID)
			})
		}),
	}
	return because(cmd, &reason, true)
}

func (c *control) companyResume() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:     "resume COMPANY",
		Short:   "Take a suspension back",
		Long:    "Takes the company's requests again and lets its waiting emails go on.",
		Example: "  gatewayctl company resume Acme",
		Args:    needs("COMPANY"), ValidArgsFunction: c.completeCompanies,
		RunE: c.run(func(ctx context.Context, s *store.Store, args []string) (answer, error) {
			by, err := c.who(reason)
			if err != nil {
				return nil, err
			}
			return changeSuspension(ctx, s, args[0], func(company store.Company) error {
				return s.ResumeCompany(ctx, by, company.ID)
			})
		}),
	}
	return because(cmd, &reason, false)
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
			fmt.Fprintf(w, "It was so before, since %s.\n", stamp(*v.SuspendedAt))
		default:
			fmt.Fprintf(w, "It was so before, since %s; the reason is new.\n", stamp(*v.SuspendedAt))
		}
		fmt.Fprintf(w, "Its requests are refused and its emails wait. To take that back: gatewayctl company resume %s\n", shellWord(v.Name))
	case v.before.SuspendedAt != nil:
		fmt.Fprintf(w, "%s is active again. It had been %s.\nA request may be refused for 5 s more.\n", name, printable(companyState(v.before)))
	default:
		fmt.Fprintf(w, "%s is active. It was not suspended.\n", name)
	}
}
