package draft

import (
	"maps"
	"slices"

	"email-gateway/shared/email"
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

// compact removes the elements that dropBlank and dropRepeated left as "".
func (e *Email) compact() {
	absent := func(text string) bool { return text == "" }
	e.CC = slices.DeleteFunc(e.CC, absent)
	e.BCC = slices.DeleteFunc(e.BCC, absent)
	e.Tags = slices.DeleteFunc(e.Tags, absent)
}
