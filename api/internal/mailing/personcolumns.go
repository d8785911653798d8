package mailing

import (
	"bytes"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"email-gateway/api/internal/csvfile"
	"email-gateway/api/internal/disposable"
	"email-gateway/shared/email"
	"email-gateway/shared/mailbox"
	"email-gateway/shared/store"
)

// maxStored is the maximum length of an address (RFC 5321); longer values are not stored.
const maxStored = 254

// address sets the entry's address. A value that does not resemble an address is rejected; an
// invalid address becomes an INVALID entry, so that the tenant can find and correct it.
func (j *Validator) address(field []byte) (code string) {
	switch {
	case len(field) == 0:
		return CodeMissingEmail
	case bytes.IndexByte(field, '@') < 0, utf8.RuneCount(field) > maxStored:
		return CodeInvalidEmail
	}
	text := j.keep(field)
	ascii, err := mailbox.ASCII(text)
	switch { // cloned, because an invalid entry must not retain the memory of the whole row
	case err != nil:
		j.entry.Email, j.entry.InvalidReason = strings.Clone(text), invalidSyntax
	case disposable.Domain(email.DomainOf(ascii)):
		j.entry.Email, j.entry.InvalidReason = strings.Clone(ascii), invalidDisposable
	default:
		j.entry.Email = ascii
	}
	return ""
}

// person reads the columns about the recipient. They have the limits of the send request's
// recipient.
func (j *Validator) person(row csvfile.Row) (store.MailingLine, error) {
	h := j.params.Header
	for _, text := range []struct {
		column int
		to     *string
	}{{h.Nome, &j.entry.Nome}, {h.RazaoSocial, &j.entry.RazaoSocial}, {h.ExternalID, &j.entry.ExternalID}} {
		field := row.Field(text.column)
		if len(field) == 0 {
			continue
		}
		*text.to = j.keepLine(field)
		switch {
		case utf8.RuneCount(field) > email.MaxFieldLen:
			return j.refuse(row.Line, text.column, CodeTooLong), nil
		case email.HasControl(*text.to):
			return j.refuse(row.Line, text.column, CodeBadCharacter), nil
		}
	}
	for _, column := range j.taxIDs {
		field := row.Field(column)
		if len(field) == 0 {
			continue
		}
		bare, err := email.ParseTaxID(string(field))
		switch {
		case err != nil && (column == j.documents || !bytes.ContainsFunc(field, isLetterOrNumber)):
			continue // another document's number, or an empty mask such as "   .   .   -  "
		case err != nil:
			return j.refuse(row.Line, column, CodeInvalidTaxID), nil
		}
		if j.entry.CPFCNPJHash != "" {
			continue
		}
		j.entry.CPFCNPJHash = email.HashTaxID(bare, j.params.HashKey)
		if j.params.DryRun {
			continue
		}
		if j.entry.CPFCNPJ, err = j.params.Ring.Seal(j.params.Company, bare); err != nil {
			return store.MailingLine{}, fmt.Errorf("encrypt tax id: %w", err)
		}
	}
	return store.MailingLine{}, nil
}

func isLetterOrNumber(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) }
