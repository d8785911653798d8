package csvfile

import (
	"fmt"
	"slices"
	"strings"
)

// Header is the first row of a file: what its columns are called and what they mean.
// Columns are found by index, so that one nobody knows shifts no other.
type Header struct {
	// The columns with a meaning of their own. Email is always there, the others are
	// -1 where the file has none.
	Email       int
	Nome        int
	CPF         int
	CNPJ        int
	CPFCNPJ     int
	RazaoSocial int
	ExternalID  int

	names []string       // as the user wrote them, "" of a column without a name
	index map[string]int // by Normalize
}

// newHeader gives the columns their meaning. Its error is a *FileError without a line.
func newHeader(names []string) (*Header, error) {
	h := &Header{names: names, index: make(map[string]int, len(names))}
	for i, name := range names {
		key := Normalize(name)
		if key == "" {
			continue // pandas' row numbers, a column inserted and never used
		}
		if first, twice := h.index[key]; twice {
			return nil, &FileError{Code: CodeDuplicateColumn, Message: fmt.Sprintf(
				"columns %d (%s) and %d (%s) have the same name: capitals, accents, spaces and dashes make no difference",
				first+1, quoted(names[first]), i+1, quoted(name))}
		}
		h.index[key] = i
	}
	email, err := h.emailColumn()
	if err != nil {
		return nil, err
	}
	h.Email = email
	h.Nome = h.first(nomeNames)
	h.CPF = h.first(cpfNames)
	h.CNPJ = h.first(cnpjNames)
	h.CPFCNPJ = h.first(cpfCNPJNames)
	h.RazaoSocial = h.first(razaoSocialNames)
	h.ExternalID = h.first(externalIDNames)
	return h, nil
}

// emailColumn insists on knowing where to send: of two columns that may be meant, the
// one called email is.
func (h *Header) emailColumn() (int, error) {
	if exact, ok := h.index[emailNames[0]]; ok {
		return exact, nil
	}
	var candidates []string
	for _, key := range emailNames {
		if i, ok := h.index[key]; ok {
			candidates = append(candidates, h.names[i])
		}
	}
	numbered := h.first(numberedEmailNames)
	switch {
	case len(candidates) == 1:
		return h.first(emailNames), nil
	case len(candidates) == 0 && numbered >= 0:
		return numbered, nil
	case len(candidates) > 1:
		return 0, &FileError{Code: CodeDuplicateColumn, Message: fmt.Sprintf(
			"more than one column can be the email address: %s; call the right one email", listed(candidates))}
	case h.looksLikeData():
		return 0, &FileError{Code: CodeNoHeader, Message: "the first row must hold the names of the columns, among them email; it holds data"}
	}
	return 0, &FileError{Code: CodeNoEmailColumn, Message: fmt.Sprintf(
		"no column is called email (or e-mail, email address, endereço de e-mail); the columns are %s", listed(h.names))}
}

// looksLikeData tells a recipient's row from names of columns, none of which has an
// address or only digits.
func (h *Header) looksLikeData() bool {
	named := false
	for _, name := range h.names {
		if at := strings.IndexByte(name, '@'); at > 0 && strings.Contains(name[at:], ".") {
			return true
		}
		named = named || strings.ContainsFunc(name, isLetter)
	}
	return !named
}

// first is the column with the name that stands first in a list of aliases, so that
// the best known wins where a file has two of them; the other stays an ordinary column.
func (h *Header) first(aliases []string) int {
	for _, key := range aliases {
		if i, ok := h.index[key]; ok {
			return i
		}
	}
	return -1
}

// Columns are the names as the user wrote them, by index. Those without a name are "".
func (h *Header) Columns() []string { return slices.Clone(h.names) }

// Index finds the column that a template means by a name: {{razão social}} and
// {{Razao_Social}} are the same. A name that no column has, but that is another word
// for what one means ({{nome}} where the column is "Full name"), finds that one. It is
// -1 where there is none. Ask IsTaxID before using the column in a text.
func (h *Header) Index(name string) int {
	key := Normalize(name)
	if i, ok := h.index[key]; ok {
		return i
	}
	for _, known := range []struct {
		aliases []string
		column  int
	}{
		{emailNames, h.Email},
		{numberedEmailNames, h.Email},
		{nomeNames, h.Nome},
		{cpfNames, h.CPF},
		{cnpjNames, h.CNPJ},
		{cpfCNPJNames, h.CPFCNPJ},
		{razaoSocialNames, h.RazaoSocial},
		{externalIDNames, h.ExternalID},
	} {
		if slices.Contains(known.aliases, key) {
			return known.column
		}
	}
	return -1
}

// IsTaxID tells that a column holds CPFs or CNPJs: one with that meaning, or one with
// either word in its name ("CPF do titular"). They are stored encrypted and must not
// be merged into an email.
func (h *Header) IsTaxID(column int) bool {
	if column < 0 || column >= len(h.names) {
		return false
	}
	key := Normalize(h.names[column])
	return strings.Contains(key, "cpf") || strings.Contains(key, "cnpj") || slices.Contains(cpfCNPJNames, key)
}
