package draft

import (
	"net/mail"
	"slices"

	"email-gateway/shared/email"
	"email-gateway/shared/mailbox"
	"email-gateway/shared/rules"
)

// CodeSenderNotAllowed: the company must not use this sender address.
const CodeSenderNotAllowed = "SENDER_NOT_ALLOWED"

// Sender validates the field from and returns it in stored form. The address must be that of defaultSender or
// of one of the company's domains. Otherwise Sender returns "" and adds a fault.
func Sender(defaultSender string, domains []string, text string, f *rules.Faults) string {
	from, err := mailbox.Parse(text)
	if err != nil {
		f.Add("from", email.CodeInvalidEmail, err.Error())
		return ""
	}
	allowed := slices.Contains(domains, email.DomainOf(from.Address))
	if company, err := mail.ParseAddress(defaultSender); err == nil && email.SameAddress(company.Address, from.Address) {
		allowed = true
	}
	if !allowed {
		f.Add("from", CodeSenderNotAllowed, "is neither the company's default sender nor an address of a domain registered for the company")
		return ""
	}
	header, err := mailbox.Header(from)
	if err != nil {
		f.Add("from", rules.CodeTooLong, err.Error())
	}
	return header
}
