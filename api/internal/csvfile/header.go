package csvfile

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Header is the first row of a file: the names of the columns and their meanings. Columns are found by
// index, so an unknown column does not shift others.
type Header struct {
	// The columns with a meaning. Email always exists, the others are -1 if the file has none.
	Email       int
	Nome        int
	CPF         int
	CNPJ        int
	CPFCNPJ     int
	RazaoSocial int
	ExternalID  int

	names []string       // as written, "" for a column without a name
	index map[string]int // by normalized name: the first column of this name; one that begins with # only if no other has the name
	again map[int]int    // of a column in index, the second one of its name
}

// newHeader assigns the meanings of the columns. Its error is a *FileError without a line.
func newHeader(names []string) (*Header, error) {
	h := &Header{names: names, index: make(map[string]int, len(names)), again: map[int]int{}}
	h.addNames(false)
	h.addNames(true)
	email, err := h.emailColumn()
	if err != nil {
		return nil, err
	}
	h.Email = email
	h.Nome = h.first(nomeNames)
	h.CPF = h.first(cpfNames)
	h.CNPJ = h.first(cnpjNames)
	h.CPFCNPJ = h.first(slices.Concat(cpfCNPJNames, documentNames))
	h.RazaoSocial = h.first(razaoSocialNames)
	h.ExternalID = h.first(externalIDNames)
	for _, used := range []int{h.Email, h.Nome, h.CPF, h.CNPJ, h.CPFCNPJ, h.RazaoSocial, h.ExternalID} {
		if err := h.CheckUnique(used); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// addNames adds the columns whose names begin with #, or all others. One that begins with # is added only if no column
// already has its name without the #.
func (h *Header) addNames(hash bool) {
	others := maps.Clone(h.index)
	for i, name := range h.names {
		key := Normalize(name)
		_, taken := others[key]
		if key == "" || taken || strings.HasPrefix(normalizeHash(name), "#") != hash { // "": row numbers of pandas, or an unused column
			continue
		}
		first, known := h.index[key]
		if !known {
			h.index[key] = i
		} else if h.again[first] == 0 {
			h.again[first] = i
		}
	}
}

// CheckUnique returns a *FileError without a line if the column, one that Index returned, is not the only one of its
// name. Columns that are not used may have the same name: exports of other programs often do.
func (h *Header) CheckUnique(column int) error {
	second, repeated := h.again[column]
	if !repeated {
		return nil
	}
	return &FileError{Code: CodeDuplicateColumn, Message: fmt.Sprintf(
		"columns %d (%s) and %d (%s) have the same name: case, accents, spaces and dashes are ignored",
		column+1, quoted(h.names[column]), second+1, quoted(h.names[second]))}
}

// emailColumn returns the email column. If several columns are candidates, one of them must be named
// email.
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
			"several columns may contain the email address: %s; rename the right one to email", listed(candidates))}
	case h.looksLikeData():
		return 0, &FileError{Code: CodeNoHeader, Message: "the first row must contain the column names, one of them email; it contains data"}
	}
	return 0, &FileError{Code: CodeNoEmailColumn, Message: fmt.Sprintf(
		"no column is named email (or e-mail, email address, endereço de e-mail); the columns are %s", listed(h.names))}
}

// looksLikeData reports whether the first row is a recipient's: column names contain neither an address
// nor only digits.
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

// first returns the column with the earliest name of a list of aliases; other matching columns stay
// ordinary columns.
func (h *Header) first(aliases []string) int {
	for _, key := range aliases {
		if i, ok := h.index[key]; ok {
			return i
		}
	}
	return -1
}

// Columns returns the names as written, by index; "" for columns without a name.
func (h *Header) Columns() []string { return slices.Clone(h.names) }

// Index returns the column that a template name refers to: {{razão social}} and {{Razao_Social}} are the
// same. If no column has the name, an alias of a meaning finds its column ({{nome}} finds "Full name").
// It is -1 if there is none. Check IsTaxID before using the column in a text.
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
		{documentNames, h.CPFCNPJ},
		{razaoSocialNames, h.RazaoSocial},
		{externalIDNames, h.ExternalID},
	} {
		if slices.Contains(known.aliases, key) {
			return known.column
		}
	}
	return -1
}

// IsTaxID reports whether a column contains CPFs or CNPJs: one with that meaning, or with either word in
// its name ("CPF do titular"). They are stored encrypted and must not be merged into an email.
func (h *Header) IsTaxID(column int) bool {
	if column < 0 || column >= len(h.names) {
		return false
	}
	key := Normalize(h.names[column])
	return strings.Contains(key, "cpf") || strings.Contains(key, "cnpj") || slices.Contains(cpfCNPJNames, key) || slices.Contains(documentNames, key)
}

// MayBeOtherDocument reports whether the column CPFCNPJ has a general name, such as documento, and the file has
// another column for CPFs or CNPJs: its values may be numbers of other documents.
func (h *Header) MayBeOtherDocument() bool {
	return h.CPFCNPJ >= 0 && (h.CPF >= 0 || h.CNPJ >= 0) && slices.Contains(documentNames, Normalize(h.names[h.CPFCNPJ]))
}
