package mailing

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"email-gateway/api/internal/csvfile"
	"email-gateway/shared/email"
	"email-gateway/shared/keyring"
	"email-gateway/shared/mailmerge"
	mailingstore "email-gateway/shared/store/mailing"
	"email-gateway/shared/template"
	"email-gateway/shared/uuidv7"
)

// TokenSource provides verification tokens; see *Tokens.
type TokenSource interface {
	Take() string
}

// Validator validates rows: it converts each row to an entry or to a validation result that rejects
// it. It is for one file and one goroutine, and reuses its memory from row to row.
type Validator struct {
	params       ValidatorParams
	templates    bound
	stored       *rowTemplate      // instead of templates and storedFields; nil = none
	names        []string          // of the columns, for validation results
	storedFields []mailmerge.Field // fields whose values an entry stores
	columns      []int             // columns of storedFields, or of the stored template's variables
	cells        cells             // the cells of these columns
	expects      []int             // columns that a template uses without a default
	kept         []int             // all columns whose text an entry stores, once for each copy
	taxIDs       []int             // columns with a CPF or CNPJ; the first non-empty one is used
	documents    int               // the one of taxIDs whose values may be numbers of other documents; -1 = none
	// mayBeEmpty: the body consists of fields only, so that a row can make it empty.
	mayBeEmpty bool

	ids      uuidv7.Series   // in the order of the lines
	values   []string        // in the order that bound expects
	text     strings.Builder // text of the stored columns
	rendered []byte
	entry    mailingstore.NewEntry
	reject   mailingstore.RejectedLine
}

// ValidatorParams are the parameters of a Validator.
type ValidatorParams struct {
	Company   uuid.UUID
	Header    *csvfile.Header
	Templates Content // must have passed CheckFields
	Ring      keyring.Ring
	HashKey   []byte
	Tokens    TokenSource
	// DryRun stores no CPF or CNPJ, since nothing would use it.
	DryRun bool
	// RejectEmpty rejects a row with an empty field that has no default. Otherwise the row is sent
	// and reported.
	RejectEmpty bool
	// Unsubscribe is a link as long as the longest one of a recipient. It replaces the real link
	// when the size of a row's email is computed.
	Unsubscribe string
}

// NewValidator returns the validator of one file.
func NewValidator(p ValidatorParams) (*Validator, error) {
	j := &Validator{params: p, documents: -1}
	for _, name := range p.Header.Columns() {
		j.names = append(j.names, shortColumn(name))
	}
	switch content := p.Templates.(type) {
	case *StoredTemplate:
		j.useTemplate(content)
	case Templates:
		if err := j.useTemplates(content); err != nil {
			return nil, err
		}
	}
	j.kept = []int{p.Header.Email, p.Header.Nome, p.Header.RazaoSocial, p.Header.ExternalID}
	for _, s := range j.cells.sources {
		j.kept = append(j.kept, s.column)
	}
	order := []int{p.Header.CPFCNPJ, p.Header.CPF, p.Header.CNPJ}
	if p.Header.MayBeOtherDocument() {
		j.documents = p.Header.CPFCNPJ
		order = []int{p.Header.CPF, p.Header.CNPJ, p.Header.CPFCNPJ} // the number of a CNH may pass for a CPF
	}
	for _, column := range order {
		if column >= 0 {
			j.taxIDs = append(j.taxIDs, column)
		}
	}
	return j, nil
}

// useTemplates prepares the validator for the templates of a request.
func (v *Validator) useTemplates(l Templates) (err error) {
	stored := l.storedFields()
	if v.templates, err = l.bind(stored.keys()); err != nil {
		return err
	}
	v.storedFields = stored.fields
	v.values = make([]string, mailmerge.OwnValues+len(v.storedFields))
	v.values[mailmerge.ValueUnsubscribeURL] = v.params.Unsubscribe
	inSubject := make([]bool, len(v.storedFields))
	for _, f := range l.Subject.Slots() {
		if i, ok := stored.index[f]; ok {
			inSubject[i] = true
		}
	}
	for _, f := range v.storedFields {
		v.columns = append(v.columns, v.params.Header.Index(f.Name))
	}
	v.cells = newCells(v.columns, inSubject)
	v.expects = l.expects(v.params.Header)
	body := l.HTML
	if body == nil {
		body = l.Text
	}
	v.mayBeEmpty = !shows(l.HTML == nil, body.Literals())
	return nil
}

// Fields are the names of NewEntry.Fields, in order.
func (v *Validator) Fields() []string {
	if v.stored != nil {
		return v.stored.names
	}
	content, _ := v.params.Templates.(Templates) // the only other one
	return content.plain().Fields
}

// EmailColumn is the name of the address column as validation results contain it.
func (v *Validator) EmailColumn() string { return v.names[v.params.Header.Email] }

// Validate validates a row. The result is valid until the next call. An error is an internal fault
// of the gateway.
func (v *Validator) Validate(row csvfile.Row) (mailingstore.Line, error) {
	v.entry = mailingstore.NewEntry{Line: row.Line, LastLine: row.LastLine, Fields: v.entry.Fields[:0], EmptyFields: v.entry.EmptyFields[:0]}
	v.beginText(row)
	if code := v.address(row.Field(v.params.Header.Email)); code != "" {
		return v.refuse(row, v.params.Header.Email, code), nil
	}
	if v.entry.InvalidReason == "" {
		if line, err := v.person(row); line.Reject != nil || err != nil {
			return line, err
		}
		if line, err := v.content(row); line.Reject != nil || err != nil {
			return line, err
		}
		v.reportID(row)
	}
	v.entry.ID, v.entry.Token = v.ids.New(), v.params.Tokens.Take()
	return mailingstore.Line{Entry: &v.entry}, nil
}

// refuse returns a validation result that rejects the row. column is an index, -1 for the whole
// row.
func (v *Validator) refuse(row csvfile.Row, column int, code string) mailingstore.Line {
	v.reject = mailingstore.RejectedLine{Line: row.Line, LastLine: row.LastLine, Code: code}
	if column >= 0 && column < len(v.names) {
		v.reject.Column = v.names[column]
	}
	return mailingstore.Line{Reject: &v.reject}
}

// content checks that the row's email can be rendered.
func (v *Validator) content(row csvfile.Row) (mailingstore.Line, error) {
	if v.stored != nil {
		return v.renderStored(row)
	}
	if line := v.emptyFields(row); line.Reject != nil {
		return line, nil
	}
	return v.render(row)
}

// emptyFields records the columns that a template uses without a default and that are empty in
// the row.
func (v *Validator) emptyFields(row csvfile.Row) mailingstore.Line {
	for _, column := range v.expects {
		if len(row.Field(column)) > 0 {
			continue
		}
		if v.params.RejectEmpty {
			return v.refuse(row, column, mailingstore.CodeEmptyField)
		}
		v.entry.EmptyFields = append(v.entry.EmptyFields, v.names[column])
	}
	return mailingstore.Line{}
}

// render checks that the row's email can be rendered. A fault that is found later, when the email is expanded or sent,
// is no longer in the answer to the upload.
func (v *Validator) render(row csvfile.Row) (mailingstore.Line, error) {
	v.readCells(row)
	for i := range v.columns {
		v.values[mailmerge.OwnValues+i] = cmp.Or(v.cells.value(i), v.storedFields[i].Default)
	}
	v.entry.Fields = append(v.entry.Fields, v.values[mailmerge.OwnValues:]...)
	v.values[mailmerge.ValueEmail], v.values[mailmerge.ValueNome], v.values[mailmerge.ValueToken] = v.entry.Email, v.entry.Nome, tokenLike

	for body := range v.templates.bodies {
		if body.Least(v.values) > email.MaxHTML { // before each value is checked in each of its places
			return v.refuse(row, -1, CodeBodyTooLarge), nil
		}
	}
	var err error
	v.rendered, err = v.templates.subject.AppendTo(v.rendered[:0], v.values)
	size := 0
	for body := range v.templates.bodies {
		if err == nil {
			err = body.Check(v.values)
		}
		if err == nil {
			size = max(size, body.Size(v.values))
		}
	}
	if wrong, ok := errors.AsType[*mailmerge.ValueFault](err); ok {
		return v.refuse(row, v.params.Header.Index(wrong.Field), codeOfValue(wrong.Code)), nil
	}
	switch {
	case err != nil:
		return mailingstore.Line{}, fmt.Errorf("line %d: %w", row.Line, err)
	case len(email.PartBytes(v.rendered)) == 0:
		return v.refuse(row, -1, CodeSubjectLength), nil
	case size > email.MaxHTML:
		return v.refuse(row, -1, CodeBodyTooLarge), nil
	case !v.mayBeEmpty:
		return mailingstore.Line{}, nil
	}
	var body []byte
	isText := false
	for bound := range v.templates.bodies { // text where html is blank
		if v.rendered, err = bound.AppendTo(v.rendered[:0], v.values); err != nil {
			return mailingstore.Line{}, fmt.Errorf("line %d: %w", row.Line, err)
		}
		if body, isText = email.PartBytes(v.rendered), bound == v.templates.text; len(body) > 0 {
			break
		}
	}
	if !shows(isText, string(body)) {
		return v.refuse(row, -1, CodeEmptyBody), nil
	}
	return mailingstore.Line{}, nil
}

// tokenLike has the length of every token.
const tokenLike = "AAAAAAAAAAAAAAAAAAAAAAAAAA"

// codeOfValue maps a code of mailmerge to one of validation results.
func codeOfValue(code string) string {
	switch code {
	case mailmerge.CodeValueAddress, mailmerge.CodeValueHost, mailmerge.CodeValuePath:
		return CodeInvalidLink
	case mailmerge.CodeValueControl, mailmerge.CodeValueNotText:
		return CodeBadCharacter
	case mailmerge.CodeSubjectLength:
		return CodeSubjectLength
	case template.CodeTooLarge:
		return CodeBodyTooLarge
	}
	return code
}
