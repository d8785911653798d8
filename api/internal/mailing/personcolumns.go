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
	mailingstore "email-gateway/shared/store/mailing"
)

// maxStored is the maximum length of an address (RFC 5321); longer values are not stored.
const maxStored = 254

// address sets the entry's address. A value that does not resemble an address is rejected; an
// invalid address becomes an INVALID entry, so that the tenant can find and correct it.
func (v *Validator) address(field []byte) (code string) {
	switch {
	case len(field) == 0:
		return CodeMissingEmail
	case bytes.IndexByte(field, '@') < 0, utf8.RuneCount(field) > maxStored:
		return CodeInvalidEmail
	}
	text := v.keep(field)
	ascii, err := mailbox.ASCII(text)
	switch { // cloned, because an invalid entry must not retain the memory of the whole row
	case err != nil:
		v.entry.Email, v.entry.InvalidReason = strings.Clone(strings.Map(printable, text)), invalidSyntax
	case disposable.Domain(email.DomainOf(ascii)):
		v.entry.Email, v.entry.InvalidReason = strings.Clone(ascii), invalidDisposable
	default:
		v.entry.Email = ascii
	}
	return ""
}

// printable replaces control characters, which a terminal that shows the list of rows would execute.
func printable(r rune) rune {
	if unicode.IsControl(r) {
		return unicode.ReplacementChar
	}
	return r
}

// person reads the columns about the recipient. They have the limits of the send request's
// recipient.
func (v *Validator) person(row csvfile.Row) (mailingstore.Line, error) {
	h := v.params.Header
	for _, text := range []struct {
		column int
		to     *string
	}{{h.Nome, &v.entry.Nome}, {h.RazaoSocial, &v.entry.RazaoSocial}, {h.ExternalID, &v.entry.ExternalID}} {
		field := row.Field(text.column)
		if len(field) == 0 || text.column == h.ExternalID && !identifies(field) {
			continue
		}
		*text.to = v.keepLine(field)
		switch {
		case utf8.RuneCount(field) > email.MaxFieldLen:
			return v.refuse(row, text.column, CodeTooLong), nil
		case email.HasControl(*text.to):
			return v.refuse(row, text.column, CodeBadCharacter), nil
		}
	}
	for _, column := range v.taxIDs {
		field := row.Field(column)
		if len(field) == 0 {
			continue
		}
		bare, err := email.ParseTaxID(string(field))
		switch {
		case err != nil && (column == v.documents || !bytes.ContainsFunc(field, isLetterOrNumber)):
			continue // another document's number, or an empty mask such as "   .   .   -  "
		case err != nil:
			return v.refuse(row, column, CodeInvalidTaxID), nil
		}
		if v.entry.CPFCNPJHash != "" {
			continue
		}
		v.entry.CPFCNPJHash = email.HashTaxID(bare, v.params.HashKey)
		if v.params.DryRun {
			continue
		}
		if v.entry.CPFCNPJ, err = v.params.Ring.Seal(v.params.Company, bare); err != nil {
			return mailingstore.Line{}, fmt.Errorf("encrypt tax id: %w", err)
		}
	}
	return mailingstore.Line{}, nil
}
