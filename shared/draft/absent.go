package draft

import (
	"maps"
	"slices"
	"strings"

	"email-gateway/shared/email"
	"email-gateway/shared/mailbox"
)

// dropBlank takes blank texts for texts that were not given, so that the rules look at what
// is left. Elements of lists stay, as "", until the rules have named the others by their
// place; compact removes them.
func (e *Email) dropBlank() {
	for _, text := range []*string{&e.To, &e.Subject, &e.HTML, &e.Text} {
		dropBlank(text)
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
	if r := e.Recipient; r != nil {
		for _, text := range []**string{&r.RecipientID, &r.ExternalID, &r.CPFCNPJ, &r.CPFCNPJHash} {
			dropBlankPointer(text)
		}
		for _, text := range []*string{&r.RazaoSocial, &r.Nome, &r.Email} {
			dropBlank(text)
		}
	}
	// A file saved with a byte order mark and put into a field begins with one.
	for _, text := range []*string{&e.Subject, &e.HTML, &e.Text} {
		*text = strings.TrimLeft(*text, "\ufeff")
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

// comparedCopies is how many different texts of one email are brought into the IDNA form to compare
// them: that of a long address takes a millisecond, and a body has room for thousands of addresses. An
// email may have ten copies.
const comparedCopies = 100

// dropRepeated replaces by "" each address of cc and bcc that to, cc or bcc has earlier, in this
// order. Letter case and the form of an international domain do not matter. It runs before the
// rules, so that a repeated address does not count toward the limit of a list. SQL's
// email_gateway_present compares without the IDNA form: to it, one address in both forms is two.
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

// crowded says that a list has more addresses than are worth a look at each.
func crowded(list []string) bool {
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
