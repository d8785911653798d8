package operator

import (
	"fmt"
	"strings"

	"email-gateway/api/internal/ctl/command"
	"email-gateway/api/internal/ctl/output"
	"email-gateway/shared/email"
	"email-gateway/shared/mailbox"
	"email-gateway/shared/store/tenant"
)

// ParseDomain returns the domain as stored and compared: its IDNA ASCII form in lower
// case.
func ParseDomain(text string) (string, error) {
	domain, err := mailbox.Domain(strings.ToLower(text))
	if err != nil || email.CheckAddress("a@"+domain) != nil {
		return "", command.Usagef("%q is not a valid sender domain: give it as in acme.example", text)
	}
	return domain, nil
}

// SharedDomainWarnings says which of the companies that use a domain may send from addresses of the others. registered is false
// if the company may send only as its default sender.
func SharedDomainWarnings(company, domain string, registered bool, others []tenant.DomainUser) []string {
	if len(others) == 0 {
		return nil
	}
	var names, all []string
	for _, other := range others {
		names = append(names, output.Printable(other.Name))
	}
	if registered {
		all = append(all, fmt.Sprintf("%s may send from any address of %s, a domain that %s use too. To end that: gatewayctl domain remove --company %s %[2]s --reason …",
			output.Printable(company), domain, strings.Join(names, " and "), output.ShellWord(company)))
	} else {
		all = append(all, fmt.Sprintf("%s was not registered, because it is also a domain of %s: %s may send only as its default sender. To allow all addresses: gatewayctl domain add --company %s %[1]s",
			domain, strings.Join(names, " and "), output.Printable(company), output.ShellWord(company)))
	}
	for i, other := range others {
		if other.Registered {
			all = append(all, fmt.Sprintf("%s may send from any address of %s, also as %s. To end that: gatewayctl domain remove --company %s %[2]s --reason …",
				names[i], domain, output.Printable(company), output.ShellWord(other.Name)))
		}
	}
	return all
}
