// Package domain implements gatewayctl domain: operators manage the sender domains of a
// company.
package domain

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/mail"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"golang.org/x/net/idna"

	"email-gateway/api/internal/ctl/command"
	"email-gateway/api/internal/ctl/operator"
	"email-gateway/api/internal/ctl/output"
	"email-gateway/shared/email"
	"email-gateway/shared/store"
	"email-gateway/shared/store/tenant"
)

// Command returns the command `gatewayctl domain` with its subcommands.
func Command(c *command.Invocation) *cobra.Command {
	cmd := command.Group("domain", "Manage the domains that a company may send from",
		`A request may name its own sender: an address of one of the company's sender domains.
Subdomains of a sender domain are not included.`,
		`  gatewayctl domain add --company Acme mail.acme.example
  gatewayctl domain list --company Acme`)
	cmd.AddCommand(addCommand(c), removeCommand(c), listCommand(c))
	return cmd
}

// domainsView lists a company's sender domains, or describes a change to them.
type domainsView struct {
	CompanyID uuid.UUID `json:"companyId"`
	Company   string    `json:"company"`
	Domains   []string  `json:"domains"`
	// Warnings say which companies share the domain that was added.
	Warnings []string `json:"warnings,omitempty"`
	done     string   // a sentence
}

func viewDomains(ctx context.Context, s *store.Store, company tenant.Company, done string, warnings ...string) (output.Result, error) {
	domains, err := s.SenderDomains(ctx, company.ID)
	return domainsView{CompanyID: company.ID, Company: company.Name, Domains: domains, Warnings: warnings, done: done}, err
}

func (v domainsView) WriteText(w io.Writer) {
	if v.done != "" {
		fmt.Fprintln(w, v.done)
		output.Warnings(w, v.Warnings)
		return
	}
	if len(v.Domains) == 0 {
		fmt.Fprintf(w, "%s has no sender domain: it can only use its default sender.\n", output.Printable(v.Company))
		return
	}
	for _, domain := range v.Domains {
		fmt.Fprintln(w, readableDomain(domain))
	}
}

func addCommand(c *command.Invocation) *cobra.Command {
	var given, reason string
	cmd := &cobra.Command{
		Use:   "add --company COMPANY DOMAIN",
		Short: "Allow a company to send from a domain",
		Long: `Allows the company to send from addresses of the domain. An internationalized domain is
stored in its ASCII form. Adding a domain that is already registered changes nothing. If another
company uses the domain too, a warning says so: each company may send from any address of a
domain that is registered for it.

The provider must know the domain too: SES rejects identities that it has not verified.`,
		Example: "  gatewayctl domain add --company Acme mail.acme.example",
		Args:    command.ExactArgs("DOMAIN"),
		RunE: operator.Run(c, func(ctx context.Context, s *store.Store, args []string) (output.Result, error) {
			domain, err := operator.ParseDomain(args[0])
			if err != nil {
				return nil, err
			}
			by, err := operator.Identity(c, reason)
			if err != nil {
				return nil, err
			}
			company, err := operator.FindCompany(ctx, s, given)
			if err != nil {
				return nil, err
			}
			if err := s.AddSenderDomain(ctx, by, company.ID, domain); err != nil {
				return nil, err
			}
			others, err := s.DomainUsers(ctx, company.ID, domain)
			if err != nil {
				return nil, err
			}
			return viewDomains(ctx, s, company, fmt.Sprintf("%s may now send from %s.", output.Printable(company.Name), readableDomain(domain)),
				operator.SharedDomainWarnings(company.Name, domain, true, others)...)
		}),
	}
	return operator.CompanyFlag(c, operator.ReasonFlag(cmd, &reason, false), &given)
}

func removeCommand(c *command.Invocation) *cobra.Command {
	var given, reason string
	cmd := &cobra.Command{
		Use:   "remove --company COMPANY DOMAIN --reason WHY",
		Short: "Stop a company from sending from a domain",
		Long: `Requests that name a sender of the domain are rejected from now on. Emails that were already
accepted keep their sender, and the company's default sender stays allowed.`,
		Example: "  gatewayctl domain remove --company Acme mail.acme.example --reason 'sold'",
		Args:    command.ExactArgs("DOMAIN"),
		RunE: operator.Run(c, func(ctx context.Context, s *store.Store, args []string) (output.Result, error) {
			domain, err := operator.ParseDomain(args[0])
			if err != nil {
				return nil, err
			}
			by, err := operator.IdentityWithReason(c, reason)
			if err != nil {
				return nil, err
			}
			company, err := operator.FindCompany(ctx, s, given)
			if err != nil {
				return nil, err
			}
			err = s.RemoveSenderDomain(ctx, by, company.ID, domain)
			if errors.Is(err, store.ErrNotFound) {
				return nil, fmt.Errorf("%s has no sender domain %s: run `gatewayctl domain list --company %s` to see its domains",
					company.Name, domain, output.ShellWord(company.Name))
			}
			if err != nil {
				return nil, err
			}
			done := fmt.Sprintf("%s may no longer send from %s.", output.Printable(company.Name), readableDomain(domain))
			if usual, err := mail.ParseAddress(company.DefaultFrom); err == nil && email.DomainOf(usual.Address) == domain {
				done += " Its default sender, " + usual.Address + ", stays allowed."
			}
			return viewDomains(ctx, s, company, done)
		}),
	}
	return operator.CompanyFlag(c, operator.ReasonFlag(cmd, &reason, true), &given)
}

func listCommand(c *command.Invocation) *cobra.Command {
	var given string
	cmd := &cobra.Command{
		Use: "list --company COMPANY", Short: "List the domains a company may send from",
		Example: "  gatewayctl domain list --company Acme",
		Args:    command.ExactArgs(),
		RunE: operator.Run(c, func(ctx context.Context, s *store.Store, _ []string) (output.Result, error) {
			company, err := operator.FindCompany(ctx, s, given)
			if err != nil {
				return nil, err
			}
			return viewDomains(ctx, s, company, "")
		}),
	}
	return operator.CompanyFlag(c, cmd, &given)
}

// readableDomain appends the Unicode form of an IDNA domain.
func readableDomain(ascii string) string {
	if readable, err := idna.Lookup.ToUnicode(ascii); err == nil && readable != ascii {
		return ascii + " (" + readable + ")"
	}
	return ascii
}
