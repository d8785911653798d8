package company

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/mail"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"email-gateway/api/internal/ctl/command"
	"email-gateway/api/internal/ctl/operator"
	"email-gateway/api/internal/ctl/output"
	"email-gateway/shared/email"
	"email-gateway/shared/mailbox"
	"email-gateway/shared/store"
	"email-gateway/shared/store/tenant"
	"email-gateway/shared/uuidv7"
)

type companyCreated struct {
	companyView
	// Warnings say which of its domains the company shares with others.
	Warnings []string `json:"warnings,omitempty"`
}

func createCommand(c *command.Invocation) *cobra.Command {
	var name, defaultFrom, reason string
	var domains []string
	cmd := &cobra.Command{
		Use:   "create --name NAME --default-from MAILBOX",
		Short: "Create a company",
		Long: `Creates a company. Its emails use the default sender unless a request names another
address of one of the company's sender domains. The domain of the default sender is
registered as a sender domain automatically, unless another company uses it too: each could
send from the addresses of the other. --domain registers more domains, and a shared one.

The provider must know the domains too: SES rejects identities that it has not verified.`,
		Example: `  gatewayctl company create --name Acme --default-from billing@acme.example
  gatewayctl company create --name 'Acme Ltda' --default-from 'Acme <billing@acme.example>' \
      --domain mail.acme.example --domain acme.com.br`,
		Args: command.ExactArgs(),
		RunE: operator.Run(c, func(ctx context.Context, s *store.Store, _ []string) (output.Result, error) {
			company, usual, err := newCompany(name, defaultFrom, domains)
			if err != nil {
				return nil, err
			}
			by, err := operator.Identity(c, reason)
			if err != nil {
				return nil, err
			}
			warnings, err := addDefaultDomain(ctx, s, &company, usual)
			if err != nil {
				return nil, err
			}
			err = s.CreateCompany(ctx, by, company)
			if errors.Is(err, store.ErrExists) {
				return nil, fmt.Errorf("a company named %q already exists: choose another name, or run `gatewayctl company show %s`",
					company.Name, output.ShellWord(company.Name))
			}
			if err != nil {
				return nil, err
			}
			made, err := s.FindCompany(ctx, company.ID.String())
			if err != nil {
				return nil, err
			}
			view, err := viewCompany(ctx, s, made)
			return companyCreated{view, warnings}, err
		}),
	}
	flags := cmd.Flags()
	flags.StringVar(&name, "name", "", "the company's unique `NAME`")
	flags.StringVar(&defaultFrom, "default-from", "", "the default sender, a `MAILBOX`: an address, or 'Name <address>'")
	flags.StringSliceVar(&domains, "domain", nil, "an additional sender `DOMAIN` (repeatable)")
	return command.RequireFlags(operator.ReasonFlag(cmd, &reason, false), "name", "default-from")
}

// newCompany validates the flags of company create. usual is the domain of the default sender.
func newCompany(name, defaultFrom string, domains []string) (c tenant.NewCompany, usual string, err error) {
	name = strings.TrimSpace(name)
	if name == "" || email.HasControl(name) {
		return c, "", command.Usagef("--name must be one line of text without control characters, such as Acme")
	}
	sender, usual, err := parseSender(defaultFrom)
	if err != nil {
		return c, "", err
	}
	var all []string
	for _, d := range domains {
		ascii, err := operator.ParseDomain(d)
		if err != nil {
			return c, "", err
		}
		if !slices.Contains(all, ascii) {
			all = append(all, ascii)
		}
	}
	return tenant.NewCompany{ID: uuidv7.New(), Name: name, DefaultFrom: sender, SenderDomains: all}, usual, nil
}

// addDefaultDomain registers the domain of the default sender too, unless another company uses it: each could then send from
// addresses of the other. If the operator named it, it is registered in any case. It returns warnings about shared domains.
func addDefaultDomain(ctx context.Context, s *store.Store, c *tenant.NewCompany, usual string) (warnings []string, err error) {
	named := c.SenderDomains
	candidates := named
	if !slices.Contains(named, usual) {
		candidates = slices.Concat(named, []string{usual})
	}
	c.SenderDomains = nil
	for _, domain := range candidates {
		others, err := s.DomainUsers(ctx, c.ID, domain)
		if err != nil {
			return nil, err
		}
		registered := len(others) == 0 || slices.Contains(named, domain)
		if registered {
			c.SenderDomains = append(c.SenderDomains, domain)
		}
		warnings = append(warnings, operator.SharedDomainWarnings(c.Name, domain, registered, others)...)
	}
	return warnings, nil
}

// parseSender parses an RFC 5322 mailbox and returns it as stored: domain in ASCII,
// lower case.
func parseSender(text string) (sender, domain string, err error) {
	parsed, err := mailbox.Parse(text)
	if err != nil {
		return "", "", command.Usagef("--default-from %q %v", text, err)
	}
	at := strings.LastIndexByte(parsed.Address, '@')
	if domain, err = operator.ParseDomain(parsed.Address[at+1:]); err != nil {
		return "", "", err
	}
	parsed.Address = parsed.Address[:at+1] + domain
	header, err := mailbox.Header(parsed)
	if err != nil {
		return "", "", command.Usagef("--default-from %q %v", text, err)
	}
	// Keep the name readable if it needs neither quotes nor encoding.
	plain := parsed.Name + " <" + parsed.Address + ">"
	if again, err := mail.ParseAddress(plain); parsed.Name != "" && err == nil && *again == parsed {
		return plain, domain, nil
	}
	return header, domain, nil
}

func (v companyCreated) WriteText(w io.Writer) {
	fmt.Fprintf(w, "Created %s.\n\n", v.Name)
	output.Table(w, "  ", [][]string{
		{"id", v.ID.String()},
		{"default sender", v.DefaultFrom},
		{"sender domains", strings.Join(v.Domains, ", ")},
	})
	next := "The domain of the default sender was registered as a sender domain. Next, create an API key:"
	if len(v.Warnings) > 0 {
		output.Warnings(w, v.Warnings)
		next = "Next, create an API key:"
	}
	fmt.Fprintf(w, "\n%s\n\n  gatewayctl key create --company %s\n", next, output.ShellWord(v.Name))
}
