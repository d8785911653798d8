package draft

import (
	"maps"
	"slices"
	"strings"

	"email-gateway/shared/email"
	"email-gateway/shared/mailbox"
)

// dropBlank treats blank texts as not given, before the rules are applied. A blank list element stays as "" until the
// rules have reported the other elements by index; compact removes it.
func (e *Email) dropBlank() {
	dropBlank(&e.To)
	for _, part := range []*string{&e.Subject, &e.HTML, &e.Text} {
		*part = email.Part(*part)
	}
	for _, text := range []**string{&e.ReplyTo, &e.From, &e.SendAt, &e.Delivery} {
		dropBlankPointer(text)
	}
	for _, list := range [][]string{e.CC, e.BCC, e.Tags} {
		for i := range list {
			dropBlank(&list[i])
		}
	}
	if slices.ContainsFunc(slices.Collect(maps.Values(e.Headers)), email.IsBlank) {
		e.Headers = maps.Clone(e.Headers)
		maps.DeleteFunc(e.Headers, func(_, value string) bool { return email.IsBlank(value) })
	}
	e.dropBlankAttachments()
	if r := e.Recipient; r != nil {
		for _, text := range []**string{&r.RecipientID, &r.ExternalID, &r.CPFCNPJ, &r.CPFCNPJHash} {
			dropBlankPointer(text)
		}
		for _, text := range []*string{&r.RazaoSocial, &r.Nome, &r.Email} {
			dropBlank(text)
		}
	}
}

func dropBlank(text *string) {
	if email.IsBlank(*text) {
		*text = ""
	}
}

func dropBlankPointer(text **string) {
	if *text != nil && email.IsBlank(**text) {
		*text = nil
	}
}

// comparedCopies is the maximum number of different addresses of one email that are converted to the IDNA form for
// comparison. A long address takes a millisecond, and a body has room for thousands of addresses. An email may have ten
// copies.
const comparedCopies = 100

// dropRepeated replaces by "" each address of cc and bcc that occurs earlier in to, cc or bcc, in this order. It
// ignores letter case and the form of an international domain. It runs before the rules, so that a repeated address
// does not count toward a list's limit. SQL's email_gateway_present compares without the IDNA form, so it counts an
// address in both forms twice.
func (e *Email) dropRepeated() {
	forms, seen := map[string]string{}, map[string]bool{}
	again := func(address string) bool {
		text := strings.ToLower(address)
		form, known := forms[text]
		if !known {
			form = text
			if len(forms) < comparedCopies {
				if ascii, err := mailbox.ASCII(address); err == nil {
					form = strings.ToLower(ascii)
				}
			}
			forms[text] = form
		}
		before := seen[form]
		seen[form] = true
		return before
	}
	again(e.To)
	for _, list := range [][]string{e.CC, e.BCC} {
		for i, address := range list {
			if again(address) {
				list[i] = ""
			}
		}
	}
}

// tooManyAddresses reports whether a list has too many addresses to compare.
func tooManyAddresses(list []string) bool {
	n := 0
	for _, address := range list {
		if address != "" {
			n++
		}
	}
	return n > comparedCopies
}

// compact removes the elements that dropBlank and dropRepeated left as "".
func (e *Email) compact() {
	absent := func(text string) bool { return text == "" }
	e.CC = slices.DeleteFunc(e.CC, absent)
	e.BCC = slices.DeleteFunc(e.BCC, absent)
	e.Tags = slices.DeleteFunc(e.Tags, absent)
}
