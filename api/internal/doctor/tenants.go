package doctor

import (
	"context"
	"net/mail"
	"slices"
	"strings"

	"email-gateway/shared/email"
)

// tenants checks which companies can send, and from which domains.
func (x *examination) tenants(ctx context.Context) {
	const check = "companies"
	companies, err := x.Store.Senders(ctx)
	if x.couldNot(check, err) {
		return
	}
	if len(companies) == 0 {
		x.add(check, Warning, "Run gatewayctl company create, then gatewayctl key create.", "There are no companies: no emails can be sent.")
		return
	}
	var suspended, keyless, foreign, domains []string
	users := domainUsers{}
	for _, c := range companies {
		if c.SuspendedAt != nil {
			suspended = append(suspended, c.Name+" ("+text(c.SuspendedReason)+")")
			continue
		}
		if !c.HasKey {
			keyless = append(keyless, c.Name)
		}
		domains = append(domains, c.Domains...)
		if usual, err := mail.ParseAddress(c.DefaultFrom); err == nil && !slices.Contains(c.Domains, email.DomainOf(usual.Address)) {
			foreign = append(foreign, c.Name+" ("+email.DomainOf(usual.Address)+")")
			users.add(email.DomainOf(usual.Address), c.Name)
		}
		for _, domain := range c.Domains {
			users.add(domain, c.Name)
		}
	}
	if len(suspended) > 0 {
		x.add(check, Warning, "If the reason no longer applies: gatewayctl company resume …", "Suspended: %s.", some(suspended))
	}
	if len(keyless) > 0 {
		x.add(check, Warning, "Create one: gatewayctl key create --company …", "Without an active API key: %s.", some(keyless))
	}
	if len(suspended)+len(keyless) == 0 {
		x.add(check, OK, "", "%d companies can send.", len(companies))
	}
	slices.Sort(domains)
	domains = slices.Compact(domains)
	if len(foreign) > 0 {
		x.add("domains", Warning, "If this is not intended: gatewayctl domain add --company … DOMAIN",
			"The default sender's domain is not registered for the company: %s.", some(foreign))
	}
	if shared := users.shared(domains); len(shared) > 0 {
		x.add("domains", Warning, "If this is not intended: gatewayctl domain remove --company … DOMAIN. A default sender stays allowed.",
			"Companies share sender domains, and those for which one is registered may send from any address of it: %s.", some(shared))
	}
	if len(domains) > 0 {
		x.add("domains", OK, "", "Sender domains: %s. To see whether SES has verified them: aws sesv2 get-email-identity --email-identity DOMAIN.", some(domains))
	}
}

// domainUsers are the names of the companies that send from a domain, by domain.
type domainUsers map[string][]string

func (u domainUsers) add(domain, company string) { u[domain] = append(u[domain], company) }

// shared formats those of the registered domains that several companies use.
func (u domainUsers) shared(registered []string) (all []string) {
	for _, domain := range registered {
		if len(u[domain]) > 1 {
			all = append(all, domain+" ("+some(u[domain])+")")
		}
	}
	return all
}

func join(names []string) string { return strings.Join(names, ", ") }
