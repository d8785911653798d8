package mailing

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"email-gateway/api/internal/csvfile"
	"email-gateway/shared/email"
	"email-gateway/shared/htmlcheck"
	"email-gateway/shared/rules"
	mailingstore "email-gateway/shared/store/mailing"
	"email-gateway/shared/template"
)

// Content is what the emails of a mailing are made from: Templates of the request, or a *StoredTemplate.
type Content interface {
	// CheckFields compares the fields with the columns of the file. A fault lists the unknown fields and the columns.
	CheckFields(header *csvfile.Header) []rules.Fault
	// Without returns the names of the existing bodies, html and text, that do not use the field.
	Without(field string) []string
	// Stored is the content as the worker reads it. It requires a content that passed CheckFields.
	Stored(header *csvfile.Header) (Stored, error)
}

// StoredTemplate is a version of a stored template. The columns of the file are its variables; an empty cell is a
// variable that is missing.
type StoredTemplate struct {
	Ref    string // name@version or name/locale@version
	Source template.Source
	Parsed *template.Template
}

// columnsOf are the columns of a file, whose names are compared as those of merge fields.
func columnsOf(header *csvfile.Header) template.Columns {
	var keys []string
	for _, name := range header.Columns() {
		keys = append(keys, csvfile.Normalize(name))
	}
	return template.Columns{
		Has: func(name string) bool { return header.Index(name) >= 0 },
		Begins: func(prefix string) bool {
			prefix = csvfile.Normalize(prefix)
			return slices.ContainsFunc(keys, func(key string) bool { return strings.HasPrefix(key, prefix) })
		},
		Within: func(prefix string) (within []string) {
			for i, key := range keys {
				if rest, ok := strings.CutPrefix(key, csvfile.Normalize(prefix)); ok && rest != "" && !header.IsTaxID(i) {
					within = append(within, prefix+rest)
				}
			}
			return within
		},
	}
}

// CheckFields implements Content.
func (s *StoredTemplate) CheckFields(header *csvfile.Header) []rules.Fault {
	uses := s.Parsed.Uses(columnsOf(header))
	var faults []rules.Fault
	for _, name := range uses.Own {
		if isReserved(name) && header.Index(name) >= 0 {
			faults = addReserved(faults, name)
		}
	}
	var limits entryLimits
	for _, name := range uses.Names {
		limits.add(PartTemplate, name, header.Index(name), "")
	}
	faults = limits.addTo(faults)
	forbidden := slices.DeleteFunc(slices.Clone(uses.Names), func(name string) bool { return !header.IsTaxID(header.Index(name)) })
	repeated := slices.IndexFunc(uses.Names, func(name string) bool { return header.CheckUnique(header.Index(name)) != nil })
	switch {
	case len(uses.Missing) > 0:
		faults = append(faults, unknownFields(PartTemplate, uses.Missing, header))
	case len(forbidden) > 0:
		faults = append(faults, forbiddenFields(PartTemplate, forbidden))
	case repeated >= 0:
		faults = append(faults, repeatedColumn(PartTemplate, uses.Names[repeated], header))
	case slices.ContainsFunc(uses.OwnInSubject, isReserved):
		faults = append(faults, secretFields(PartTemplate, slices.DeleteFunc(uses.OwnInSubject, func(name string) bool { return !isReserved(name) })))
	case len(uses.Conflict) > 0:
		faults = append(faults, rules.Fault{Field: PartTemplate, Code: CodeFieldClash, Message: fmt.Sprintf(
			"uses %s, which cannot all be columns: a value is either a text or an object with further values", inBraces(uses.Conflict))})
	}
	return faults
}

// Without implements Content.
func (s *StoredTemplate) Without(field string) []string {
	var parts []string
	for _, part := range []struct{ name, text string }{{PartHTML, s.Source.HTML}, {PartText, s.Source.Text}} {
		if part.text != "" && !s.Parsed.Has(part.name, field) {
			parts = append(parts, part.name)
		}
	}
	return parts
}

// Stored implements Content.
func (s *StoredTemplate) Stored(header *csvfile.Header) (Stored, error) {
	declared, err := template.Declarations(s.Source.Variables)
	if err != nil {
		return Stored{}, err
	}
	return Stored{
		Subject: s.Source.Subject, HTML: s.Source.HTML, Text: s.Source.Text, Fields: s.Parsed.Uses(columnsOf(header)).Names,
		Template: s.Ref, Variables: declared,
	}, nil
}

// rowTemplate is a stored template bound to the columns of a file.
type rowTemplate struct {
	row   *template.Row
	names []string // of Fields
}

// useTemplate prepares the validator for a stored template.
func (v *Validator) useTemplate(s *StoredTemplate) {
	uses := s.Parsed.Uses(columnsOf(v.params.Header))
	v.stored = &rowTemplate{row: s.Parsed.Row(uses.Names), names: uses.Names}
	for _, name := range uses.Names {
		v.columns = append(v.columns, v.params.Header.Index(name))
	}
	v.cells = newCells(v.columns, uses.InSubject)
	v.mayBeEmpty = !shows(s.Source.HTML == "", s.Parsed.Literals())
}

// shows reports whether a reader of a body would see anything.
func shows(isText bool, body string) bool {
	if isText {
		return !email.IsBlank(body)
	}
	return htmlcheck.HasVisibleContent(body)
}

// renderStored is render and emptyFields for a stored template.
func (v *Validator) renderStored(row csvfile.Row) (mailingstore.Line, error) {
	v.readCells(row)
	for i := range v.columns {
		v.entry.Fields = append(v.entry.Fields, v.cells.value(i))
	}
	made, buffer, empty, err := v.stored.row.AppendTo(v.rendered[:0], template.Values{
		Email: v.entry.Email, Token: tokenLike, UnsubscribeURL: v.params.Unsubscribe, Fields: v.entry.Fields,
	})
	v.rendered = buffer
	if fault, ok := errors.AsType[*template.RowFault](err); ok {
		return v.refuse(row, v.columnOf(fault), codeOfValue(fault.Code)), nil
	}
	if err != nil {
		return mailingstore.Line{}, fmt.Errorf("line %d: %w", row.Line, err)
	}
	if len(made.Subject) == 0 {
		return v.refuse(row, -1, CodeSubjectLength), nil
	}
	for _, i := range empty {
		if v.params.RejectEmpty {
			return v.refuse(row, v.columns[i], mailingstore.CodeEmptyField), nil
		}
		v.entry.EmptyFields = append(v.entry.EmptyFields, v.names[v.columns[i]])
	}
	if v.mayBeEmpty {
		body, isText := made.HTML, len(made.HTML) == 0
		if isText {
			body = made.Text
		}
		if !shows(isText, string(body)) {
			return v.refuse(row, -1, CodeEmptyBody), nil
		}
	}
	return mailingstore.Line{}, nil
}

func (v *Validator) columnOf(fault *template.RowFault) int {
	switch {
	case fault.Column >= 0:
		return v.columns[fault.Column]
	case isOwn(fault.Field):
		return v.params.Header.Index(fault.Field)
	}
	return -1
}
