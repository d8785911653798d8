package ctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/mail"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"email-gateway/shared/email"
	"email-gateway/shared/store"
)

func (c *control) company() *cobra.Command {
	cmd := group("company", "Create, list, suspend and resume companies (tenants)",
		"A company is a tenant: it has API keys, sender domains and emails.",
		`  gatewayctl company create --name Acme --default-from 'Acme <billing@acme.example>'
  gatewayctl company suspend Acme --reason 'unpaid since October'`)
	cmd.AddCommand(c.companyCreate(), c.companyList(), c.companyShow(), c.companySuspend(), c.companyResume(), c.companyRetention(), c.companyQuota(), c.companyWebhook(), c.companyReputation(), c.companyUsage())
	return cmd
}

// companyView is a company as show and create print it.
type companyView struct {
	store.Company
	Domains []string       `json:"domains"`
	Keys    []store.APIKey `json:"keys"`
}

func viewCompany(ctx context.Context, s *store.Store, company store.Company) (companyView, error) {
	domains, err := s.SenderDomains(ctx, company.ID)
	if err != nil {
		return companyView{}, err
	}
	keys, err := s.APIKeys(ctx, company.ID)
	if err != nil {
		return companyView{}, err
	}
	return companyView{Company: company, Domains: domains, Keys: append([]store.APIKey{}, keys...)}, nil
}

type companyCreated struct{ companyView }

func (c *control) companyCreate() *cobra.Command {
	var name, defaultFrom, reason string
	var domains []string
	cmd := &cobra.Command{
		Use:   "create --name NAME --default-from MAILBOX",
		Short: "Create a company",
		Long: `Creates a company. Its emails use the default sender unless a request names another
address of one of the company's sender domains. The domain of the default sender is
registered as a sender domain automatically; --domain registers more.

The provider must know the domains too: SES rejects identities that it has not verified.`,
		Example: `  gatewayctl company create --name Acme --default-from billing@acme.example
  gatewayctl company create --name 'Acme Ltda' --default-from 'Acme <billing@acme.example>' \
      --domain mail.acme.example --domain acme.com.br`,
		Args: exactArgs(),
		RunE: c.run(func(ctx context.Context, s *store.Store, _ []string) (answer, error) {
			company, err := newCompany(name, defaultFrom, domains)
			if err != nil {
				return nil, err
			}
			by, err := c.operatorIdentity(reason)
			if err != nil {
				return nil, err
			}
			err = s.CreateCompany(ctx, by, company)
			if errors.Is(err, store.ErrExists) {
				return nil, fmt.Errorf("a company named %q already exists: choose another name, or run `gatewayctl company show %s`",
					company.Name, shellWord(company.Name))
			}
			if err != nil {
				return nil, err
			}
			made, err := s.FindCompany(ctx, company.ID.String())
			if err != nil {
				return nil, err
			}
			view, err := viewCompany(ctx, s, made)
			return companyCreated{view}, err
		}),
	}
	flags := cmd.Flags()
	flags.StringVar(&name, "name", "", "the company's unique `NAME`")
	flags.StringVar(&defaultFrom, "default-from", "", "the default sender, a `MAILBOX`: an address, or 'Name <address>'")
	flags.StringSliceVar(&domains, "domain", nil, "an additional sender `DOMAIN` (repeatable)")
	return required(auditReasonFlag(cmd, &reason, false), "name", "default-from")
}

// newCompany validates the flags of company create.
func newCompany(name, defaultFrom string, domains []string) (store.NewCompany, error) {
	name = strings.TrimSpace(name)
	if name == "" || email.HasControl(name) {
		return store.NewCompany{}, usagef("--name must be one line of text without control characters, such as Acme")
	}
	sender, domain, err := parseSender(defaultFrom)
	if err != nil {
		return store.NewCompany{}, err
	}
	all := []string{domain}
	for _, d := range domains {
		ascii, err := asciiDomain(d)
		if err != nil {
			return store.NewCompany{}, err
		}
		if !slices.Contains(all, ascii) {
			all = append(all, ascii)
		}
	}
	id, err := uuid.NewV7()
	if err != nil {
		return store.NewCompany{}, fmt.Errorf("make id: %w", err)
	}
	return store.NewCompany{ID: id, Name: name, DefaultFrom: sender, SenderDomains: all}, nil
}

// parseSender parses an RFC 5322 mailbox and returns it as stored: domain in ASCII,
// lower case.
func parseSender(text string) (sender, domain string, err error) {
	parsed, err := mail.ParseAddress(text)
	switch {
	case err != nil, strings.HasSuffix(strings.TrimSpace(text), ";"), // a group
		email.HasControl(text), email.HasControl(parsed.Name), utf8.RuneCountInString(parsed.Name) > email.MaxFieldLen:
		return "", "", usagef("--default-from %q is not a mailbox: give an address, or 'Name <address>'", text)
	}
	at := strings.LastIndexByte(parsed.Address, '@')
	if domain, err = asciiDomain(parsed.Address[at+1:]); err != nil {
		return "", "", err
	}
	address := parsed.Address[:at+1] + domain
	if err := email.CheckAddress(address); err != nil {
		return "", "", usagef("--default-from: %s %s", parsed.Address, err)
	}
	if parsed.Name == "" {
		return address, domain, nil
	}
	// Keep the name readable if it needs neither quotes nor encoding.
	plain := parsed.Name + " <" + address + ">"
	if again, err := mail.ParseAddress(plain); err == nil && again.Name == parsed.Name && again.Address == address {
		return plain, domain, nil
	}
	return (&mail.Address{Name: parsed.Name, Address: address}).String(), domain, nil
}

func (v companyCreated) text(w io.Writer) {
	fmt.Fprintf(w, "Created %s.\n\n", v.Name)
	table(w, "  ", [][]string{
		{"id", v.ID.String()},
		{"default sender", v.DefaultFrom},
		{"sender domains", strings.Join(v.Domains, ", ")},
	})
	fmt.Fprintf(w, "\nThe domain of the default sender was registered as a sender domain. Next, create an API key:\n\n  gatewayctl key create --company %s\n",
		shellWord(v.Name))
}

type companyList struct {
	Companies []store.Company `json:"companies"`
}

func (c *control) companyList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List all companies",
		Example: "  gatewayctl company list\n  gatewayctl company list --json | jq -r '.companies[].name'",
		Args:    exactArgs(),
		RunE: c.run(func(ctx context.Context, s *store.Store, _ []string) (answer, error) {
			all, err := s.Companies(ctx)
			return companyList{append([]store.Company{}, all...)}, err
		}),
	}
}

func (v companyList) text(w io.Writer) {
	if len(v.Companies) == 0 {
		fmt.Fprintln(w, "No companies yet: see `gatewayctl company create --help`.")
		return
	}
	rows := [][]string{{"NAME", "ID", "DEFAULT SENDER", "CREATED", "STATE"}}
	for _, company := range v.Companies {
		rows = append(rows, []string{company.Name, company.ID.String(), company.DefaultFrom, stamp(company.CreatedAt), companyState(company)})
	}
	table(w, "", rows)
}

func (c *control) companyShow() *cobra.Command {
	return &cobra.Command{
		Use: "show COMPANY", Short: "Show one company with its domains and keys",
		Example: "  gatewayctl company show Acme",
		Args:    exactArgs("COMPANY"), ValidArgsFunction: c.completeCompanies(),
		RunE: c.run(func(ctx context.Context, s *store.Store, args []string) (answer, error) {
			company, err := findCompany(ctx, s, args[0])
			if err != nil {
				return nil, err
			}
			return viewCompany(ctx, s, company)
		}),
	}
}

func (v companyView) text(w io.Writer) {
	fmt.Fprintln(w, printable(v.Name))
	fmt.Fprintln(w)
	table(w, "  ", [][]string{
		{"id", v.ID.String()},
		{"state", companyState(v.Company)},
		{"default sender", v.DefaultFrom},
		{"sender domains", strings.Join(v.Domains, ", ")},
		{"created", stamp(v.CreatedAt)},
	})
	fmt.Fprintln(w)
	keyList{Keys: v.Keys}.text(w)
}

func companyState(c store.Company) string {
	if c.SuspendedAt == nil {
		if c.MailingsPausedAt != nil {
			return "active, mailings paused by the reputation guard since " + stamp(*c.MailingsPausedAt)
		}
		return "active"
	}
	state := "suspended since " + stamp(*c.SuspendedAt)
	if c.SuspendedReason != nil {
		state += ": " + *c.SuspendedReason
	}
	return state
}
