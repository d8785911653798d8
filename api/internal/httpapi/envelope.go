package httpapi

import (
	"net/mail"
	"slices"
	"time"

	"email-gateway/api/internal/mailbox"
	"email-gateway/shared/email"
	"email-gateway/shared/store"
)

// senderOf is From as it is stored, made from the field from: the company's default
// sender, or an address of one of its domains. "" with a fault if it is neither.
func senderOf(caller *store.Caller, text string, f *faults) string {
	from, err := mailbox.Parse(text)
	if err != nil {
		f.add("from", email.CodeInvalidEmail, err.Error())
		return ""
	}
	allowed := slices.Contains(caller.SenderDomains, email.DomainOf(from.Address))
	if usual, err := mail.ParseAddress(caller.DefaultFrom); err == nil && email.SameAddress(usual.Address, from.Address) {
		allowed = true
	}
	if !allowed {
		f.add("from", codeSenderNotAllowed, "is neither the company's default sender nor of a domain registered for it")
		return ""
	}
	return mailbox.Header(from)
}

// sendAtOf reads the field sendAt: within a year; a time that has passed means now,
// which is the zero time.
func sendAtOf(text string, now time.Time, f *faults) time.Time {
	at, err := parseTime(text)
	switch {
	case err != nil:
		f.add("sendAt", "INVALID_TIMESTAMP", err.Error())
	case at.After(now.AddDate(1, 0, 0)):
		f.add("sendAt", "OUT_OF_RANGE", "must be within a year")
	case at.After(now):
		return at.UTC()
	}
	return time.Time{}
}
