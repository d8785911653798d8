package ctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/mail"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"golang.org/x/net/idna"

	"email-gateway/shared/email"
	"email-gateway/shared/mailbox"
	"email-gateway/shared/store"
)

func (c *control) domain() *cobra.Command {
	cmd := group("domain", "Manage the domains that a company may send from",
		`A request may name its own sender: an address of one of the company's sender domains.
Subdomains of a sender domain are not included.`,
		`  gatewayctl domain add --company Acme mail.acme.example
  gatewayctl domain list --company Acme`)
	cmd.AddCommand(c.domainAdd(), c.domainRemove(), c.domainList())
	return cmd
}

// domainsView lists a company's sender domains, or describes a change to them.
type domainsView struct {
	CompanyID uuid.UUID `json:"companyId"`
	Company   string    `json:"company"`
	Domains   []string  `json:"domains"`
	done      string    // a sentence
}

func viewDomains(ctx context.Context, s *store.Store, company store.Company, done string) (answer, error) {
	domains, err := s.SenderDomains(ctx, company.ID)
	return domainsView{CompanyID: company.ID, Company: company.Name, Domains: domains, done: done}, err
}

func (v domainsView) text(w io.Writer) {
	if v.done != "" {
		fmt.Fprintln(w, v.done)
		return
	}
	if len(v.Domains) == 0 {
		fmt.Fprintf(w, "%s has no sender domain: it can only use its default sender.\n", printable(v.Company))
		return
	}
	for _, domain := range v.Domains {
		fmt.Fprintln(w, readableDomain(domain))
	}
}

func (c *control) domainAdd() *cobra.Command {
	var given, reason string
	cmd := &cobra.Command{
		Use:   "add --company COMPANY DOMAIN",
		Short: "Allow a company to send from a domain",
		Long: `Allows the company to send from addresses of the domain. An internationalized domain is
stored in its ASCII form. Adding a domain that is already registered changes nothing.

The provider must know the domain too: SES rejects identities that it has not verified.`,
		Example: "  gatewayctl domain add --company Acme mail.acme.example",
		Args:    exactArgs("DOMAIN"),
		RunE: c.run(func(ctx context.Context, s *store.Store, args []string) (answer, error) {
			domain, err := asciiDomain(args[0])
			if err != nil {
				return nil, err
			}
			by, err := c.operatorIdentity(reason)
			if err != nil {
				return nil, err
			}
			company, err := findCompany(ctx, s, given)
			if err != nil {
				return nil, err
			}
			if err := s.AddSenderDomain(ctx, by, company.ID, domain); err != nil {
				return nil, err
			}
			return viewDomains(ctx, s, company, fmt.Sprintf("%s may now send from %s.", printable(company.Name), readableDomain(domain)))
		}),
	}
	return c.ofCompany(auditReasonFlag(cmd, &reason, false), &given)
}

func (c *control) domainRemove() *cobra.Command {
	var given, reason string
	cmd := &cobra.Command{
		Use:   "remove --company COMPANY DOMAIN --reason WHY",
		Short: "Stop a company from sending from a domain",
		Long: `Requests that name a sender of the domain are rejected from now on. Emails that were already
accepted keep their sender, and the company's default sender stays allowed.`,
		Example: "  gatewayctl domain remove --company Acme mail.acme.example --reason 'sold'",
		Args:    exactArgs("DOMAIN"),
		RunE: c.run(func(ctx context.Context, s *store.Store, args []string) (answer, error) {
			domain, err := asciiDomain(args[0])
			if err != nil {
				return nil, err
			}
			by, err := c.operatorWithReason(reason)
			if err != nil {
				return nil, err
			}
			company, err := findCompany(ctx, s, given)
			if err != nil {
				return nil, err
			}
			err = s.RemoveSenderDomain(ctx, by, company.ID, domain)
			if errors.Is(err, store.ErrNotFound) {
				return nil, fmt.Errorf("%s has no sender domain %s: run `gatewayctl domain list --company %s` to see its domains",
					company.Name, domain, shellWord(company.Name))
			}
			if err != nil {
				return nil, err
			}
			done := fmt.Sprintf("%s may no longer send from %s.", printable(company.Name), readableDomain(domain))
			if usual, err := mail.ParseAddress(company.DefaultFrom); err == nil && email.DomainOf(usual.Address) == domain {
				done += " Its default sender, " + usual.Address + ", stays allowed."
			}
			return viewDomains(ctx, s, company, done)
		}),
	}
	return c.ofCompany(auditReasonFlag(cmd, &reason, true), &given)
}

func (c *control) domainList() *cobra.Command {
	var given string
	cmd := &cobra.Command{
		Use: "list --company COMPANY", Short: "List the domains a company may send from",
		Example: "  gatewayctl domain list --company Acme",
		Args:    exactArgs(),
		RunE: c.run(func(ctx context.Context, s *store.Store, _ []string) (answer, error) {
			company, err := findCompany(ctx, s, given)
			if err != nil {
				return nil, err
			}
			return viewDomains(ctx, s, company, "")
		}),
	}
	return c.ofCompany(cmd, &given)
}

// asciiDomain returns the domain as stored and compared: its IDNA ASCII form in lower
// case.
func asciiDomain(text string) (string, error) {
	domain, err := mailbox.Domain(strings.ToLower(text))
	if err != nil || email.CheckAddress("a@"+domain) != nil {
		return "", usagef("%q is not a valid sender domain: give it as in acme.example", text)
	}
	return domain, nil
}

// readableDomain appends the Unicode form of an IDNA domain.
func readableDomain(ascii string) string {
	if readable, err := idna.Lookup.ToUnicode(ascii); err == nil && readable != ascii {
		return ascii + " (" + readable + ")"
	}
	return ascii
}

// ofCompany adds the required flag --company.
func (c *control) ofCompany(cmd *cobra.Command, given *string) *cobra.Command {
	cmd.Flags().StringVar(given, "company", "", "the `COMPANY`, by id or exact name")
	c.completeCompanyFlag(cmd)
	return required(cmd, "company")
}

// required marks flags that must be given.
func required(cmd *cobra.Command, flags ...string) *cobra.Command {
	for _, flag := range flags {
		_ = cmd.MarkFlagRequired(flag) // fails only for a flag that does not exist
	}
	return cmd
}
