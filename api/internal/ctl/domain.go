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
	cmd := group("domain", "Say which domains a company may send from",
		`A request may name a sender of its own: an address of one of the company's sender
domains. A domain does not stand for its subdomains.`,
		`  gatewayctl domain add --company Acme mail.acme.example
  gatewayctl domain list --company Acme`)
	cmd.AddCommand(c.domainAdd(), c.domainRemove(), c.domainList())
	return cmd
}

// domainsView is what a company may send from, after what was done.
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
		fmt.Fprintf(w, "%s has no sender domain: it sends from its default sender only.\n", printable(v.Company))
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
		Short: "Let a company send from a domain",
		Long: `Lets the company send from addresses of the domain. A domain beyond ASCII is kept in its
ASCII form. Adding one that is there already changes nothing.

The provider must know the domain too: SES refuses identities it has not verified.`,
		Example: "  gatewayctl domain add --company Acme mail.acme.example",
		Args:    needs("DOMAIN"),
		RunE: c.run(func(ctx context.Context, s *store.Store, args []string) (answer, error) {
			domain, err := asciiDomain(args[0])
			if err != nil {
				return nil, err
			}
			by, err := c.who(reason)
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
			return viewDomains(ctx, s, company, fmt.Sprintf("%s may send from %s.", printable(company.Name), readableDomain(domain)))
		}),
	}
	return c.ofCompany(because(cmd, &reason, false), &given)
}

func (c *control) domainRemove() *cobra.Command {
	var given, reason string
	cmd := &cobra.Command{
		Use:   "remove --company COMPANY DOMAIN --reason WHY",
		Short: "Stop a company from sending from a domain",
		Long: `Refuses further requests that name a sender of the domain. Emails that were accepted
already keep their sender, and the company's default sender stays allowed.`,
		Example: "  gatewayctl domain remove --company Acme mail.acme.example --reason 'sold'",
		Args:    needs("DOMAIN"),
		RunE: c.run(func(ctx context.Context, s *store.Store, args []string) (answer, error) {
			domain, err := asciiDomain(args[0])
			if err != nil {
				return nil, err
			}
			by, err := c.whoAndWhy(reason)
			if err != nil {
				return nil, err
			}
			company, err := findCompany(ctx, s, given)
			if err != nil {
				return nil, err
			}
			err = s.RemoveSenderDomain(ctx, by, company.ID, domain)
			if errors.Is(err, store.ErrNotFound) {
				return nil, fmt.Errorf("%s has no sender domain %s: `gatewayctl domain list --company %s` shows those it has",
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
	return c.ofCompany(because(cmd, &reason, true), &given)
}

func (c *control) domainList() *cobra.Command {
	var given string
	cmd := &cobra.Command{
		Use: "list --company COMPANY", Short: "List the domains a company may send from",
		Example: "  gatewayctl domain list --company Acme",
		Args:    needs(),
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

// asciiDomain is the domain in the form in which the gateway keeps and compares
// it: IDNA's, in lower case.
func asciiDomain(text string) (string, error) {
	domain, err := mailbox.Domain(strings.ToLower(text))
	if err != nil || email.CheckAddress("a@"+domain) != nil {
		return "", usagef("%q is not a domain that mail can be sent from: give it as in acme.example", text)
	}
	return domain, nil
}

// readableDomain adds what an IDNA domain looks like to people.
func readableDomain(ascii string) string {
	if readable, err := idna.Lookup.ToUnicode(ascii); err == nil && readable != ascii {
		return ascii + " (" + readable + ")"
	}
	return ascii
}

// ofCompany gives a command the flag that says whose things it is about.
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
