package draft

import (
	"maps"
	"slices"
	"strings"

	"email-gateway/shared/email"
)

// dropBlank takes blank texts for texts that were not given, so that the rules look at what
// is left. Elements of lists stay, as "", until the rules have named the others by their
// place; compact takes them out.
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

// compact takes out the elements that are blank, and the addresses that an earlier place
// has: of to, cc and bcc in this order. A mailbox is one whatever the case of its letters.
func (e *Email) compact() {
	blank := func(text string) bool { return text == "" }
	seen := map[string]bool{strings.ToLower(e.To): true}
	again := func(address string) bool {
		key := strings.ToLower(address)
		before := seen[key]
		seen[key] = true
		return before || address == ""
	}
	e.CC = slices.DeleteFunc(e.CC, again)
	e.BCC = slices.DeleteFunc(e.BCC, again)
	e.Tags = slices.DeleteFunc(e.Tags, blank)
}
