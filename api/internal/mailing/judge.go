package mailing

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"

	"email-gateway/api/internal/csvfile"
	"email-gateway/api/internal/disposable"
	"email-gateway/api/internal/keyring"
	"email-gateway/shared/email"
	"email-gateway/shared/htmlcheck"
	"email-gateway/shared/mailbox"
	"email-gateway/shared/mailmerge"
	"email-gateway/shared/store"
)

// TokenSource hands out verification tokens. *Tokens is one.
type TokenSource interface {
	Take() string
}

// Judge makes an entry of a row, or a verdict on why it is none. It is for one file
// and one goroutine, and reuses its memory from row to row.
type Judge struct {
	params    JudgeParams
	letter    bound
	names     []string          // of the columns, for verdicts
	slots     []mailmerge.Field // that an entry keeps the values of
	columns   []int             // of the slots
	inSubject []bool            // which slots stand in the subject too, where a line end cannot
	expects   []int             // columns that a template uses without a default
	kept      []int             // all columns that an entry keeps as they are
	taxIDs    []int             // columns with a CPF or CNPJ; the first that is filled in counts
	// mayShowNothing: the body is made of fields alone, so that a row can leave it empty.
	mayShowNothing bool

	values   []string        // as bound wants them
	text     strings.Builder // of the row's kept columns
	rendered []byte
	entry    store.NewEntry
	reject   store.RejectedLine
}

// JudgeParams are what a Judge is made from.
type JudgeParams struct {
	Company uuid.UUID
	Header  *csvfile.Header
	Letter  Letter // CheckFields has nothing against it
	Ring    keyring.Ring
	HashKey []byte
	Tokens  TokenSource
	// DryRun keeps no CPF or CNPJ: nobody would ever take it from the entry.
	DryRun bool
	// RejectEmpty refuses a row that leaves a field without a default empty. Otherwise it is
	// sent, and reported.
	RejectEmpty bool
	// Unsubscribe is a link as long as any that a recipient is sent: it stands in for
	// theirs where a row's email is measured.
	Unsubscribe string
}

// NewJudge prepares to judge the rows of one file.
func NewJudge(p JudgeParams) (*Judge, error) {
	slots := p.Letter.slots()
	letter, err := p.Letter.bind(keys(slots))
	if err != nil {
		return nil, err
	}
	j := &Judge{params: p, letter: letter, slots: slots, values: make([]string, mailmerge.OwnValues+len(slots))}
	j.values[mailmerge.ValueUnsubscribeURL] = p.Unsubscribe
	for _, name := range p.Header.Columns() {
		j.names = append(j.names, shortColumn(name))
	}
	for _, f := range slots {
		j.columns = append(j.columns, p.Header.Index(f.Name))
		j.inSubject = append(j.inSubject, slices.Contains(p.Letter.Subject.Slots(), f))
	}
	j.expects = p.Letter.expects(p.Header)
	j.mayShowNothing = !htmlcheck.Shows(p.Letter.HTML.Literals())
	j.kept = slices.Concat([]int{p.Header.Email, p.Header.Nome, p.Header.RazaoSocial, p.Header.ExternalID}, j.columns)
	for _, column := range []int{p.Header.CPFCNPJ, p.Header.CPF, p.Header.CNPJ} {
		if column >= 0 {
			j.taxIDs = append(j.taxIDs, column)
		}
	}
	return j, nil
}

// Fields are the names of what NewEntry.Fields holds, in its order.
func (j *Judge) Fields() []string { return j.params.Letter.Stored().Fields }

// Judge is the verdict on a row. Its line is valid until the next call. The error is a
// fault of the gateway.
func (j *Judge) Judge(row csvfile.Row) (store.MailingLine, error) {
	j.entry = store.NewEntry{Line: row.Line, Fields: j.entry.Fields[:0], EmptyFields: j.entry.EmptyFields[:0]}
	j.beginText(row)
	if code := j.address(row.Field(j.params.Header.Email)); code != "" {
		return j.refuse(row.Line, j.params.Header.Email, code), nil
	}
	if j.entry.InvalidReason == "" {
		if line, err := j.person(row); line.Reject != nil || err != nil {
			return line, err
		}
		if line := j.emptyFields(row); line.Reject != nil {
			return line, nil
		}
		if line, err := j.render(row); line.Reject != nil || err != nil {
			return line, err
		}
	}
	id, err := uuid.NewV7() // each is greater than the one before, which the entries' order relies on
	if err != nil {
		return store.MailingLine{}, fmt.Errorf("make entry id: %w", err)
	}
	j.entry.ID, j.entry.Token = id, j.params.Tokens.Take()
	return store.MailingLine{Entry: &j.entry}, nil
}

// beginText makes room for the texts of a row, which share one piece of memory: a row
// costs three allocations, and its token and its id are the others.
func (j *Judge) beginText(row csvfile.Row) {
	size := 0
	for _, column := range j.kept {
		size += len(row.Field(column))
	}
	j.text.Reset()
	j.text.Grow(size)
}

// keep is the text of a field, which outlives the row.
func (j *Judge) keep(field []byte) string {
	begin := j.text.Len()
	j.text.Write(field)
	return j.text.String()[begin:]
}

// keepLine is keep for a text that stands on one line: a line end or a tab in the cell becomes
// a space, as does what stands around it.
func (j *Judge) keepLine(field []byte) string {
	begin := j.text.Len()
	for {
		n := -1
		if mayBreak(field) {
			n = bytes.IndexFunc(field, isLineBreak)
		}
		if n < 0 {
			j.text.Write(field)
			return j.text.String()[begin:]
		}
		j.text.Write(bytes.TrimRightFunc(field[:n], email.IsInvisible))
		j.text.WriteByte(' ')
		field = bytes.TrimLeftFunc(field[n:], email.IsInvisible)
	}
}

// mayBreak is a cheap question that spares nearly all fields isLineBreak.
func mayBreak(field []byte) bool {
	for _, b := range field {
		if b < ' ' || b == 0xC2 || b == 0xE2 {
			return true
		}
	}
	return false
}

func isLineBreak(r rune) bool {
	return r >= '\t' && r <= '\r' || r == '\u0085' || r == '\u2028' || r == '\u2029'
}

// refuse is the verdict that the row is no entry. column is an index, -1 for the row as
// a whole.
func (j *Judge) refuse(line, column int, code string) store.MailingLine {
	j.reject = store.RejectedLine{Line: line, Code: code}
	if column >= 0 && column < len(j.names) {
		j.reject.Column = j.names[column]
	}
	return store.MailingLine{Reject: &j.reject}
}

// maxStored is how long an address may be (RFC 5321) that looks like one at all; what is
// longer is not worth keeping.
const maxStored = 254

// address sets the entry's address. What is hardly one is refused; what looks like one
// and is none stands in the list of entries, where somebody may want to correct it.
func (j *Judge) address(field []byte) (code string) {
	switch {
	case len(field) == 0:
		return CodeMissingEmail
	case bytes.IndexByte(field, '@') < 0, utf8.RuneCount(field) > maxStored:
		return CodeInvalidEmail
	}
	text := j.keep(field)
	ascii, err := mailbox.ASCII(text)
	switch { // an invalid entry has no other texts: it must not hold the memory of the row's
	case err != nil:
		j.entry.Email, j.entry.InvalidReason = strings.Clone(text), invalidSyntax
	case disposable.Domain(email.DomainOf(ascii)):
		j.entry.Email, j.entry.InvalidReason = strings.Clone(ascii), invalidDisposable
	default:
		j.entry.Email = ascii
	}
	return ""
}

// person reads the columns that say who lives at the address. They have the limits of
// the send request's recipient.
func (j *Judge) person(row csvfile.Row) (store.MailingLine, error) {
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
		if err != nil {
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

// emptyFields notes the columns that a template uses without a default and the row leaves
// empty.
func (j *Judge) emptyFields(row csvfile.Row) store.MailingLine {
	for _, column := range j.expects {
		if len(row.Field(column)) > 0 {
			continue
		}
		if j.params.RejectEmpty {
			return j.refuse(row.Line, column, store.CodeEmptyField)
		}
		j.entry.EmptyFields = append(j.entry.EmptyFields, j.names[column])
	}
	return store.MailingLine{}
}

// render makes sure that the row's email can be written: whoever expands and sends it
// later has nobody to tell.
func (j *Judge) render(row csvfile.Row) (store.MailingLine, error) {
	for i, column := range j.columns {
		field := row.Field(column)
		switch value := &j.values[mailmerge.OwnValues+i]; {
		case len(field) == 0:
			*value = j.slots[i].Default
		case j.inSubject[i]:
			*value = j.keepLine(field)
		default:
			*value = j.keep(field)
		}
	}
	j.entry.Fields = append(j.entry.Fields, j.values[mailmerge.OwnValues:]...)
	j.values[mailmerge.ValueEmail], j.values[mailmerge.ValueNome], j.values[mailmerge.ValueToken] = j.entry.Email, j.entry.Nome, tokenLike

	var err error
	if j.rendered, err = j.letter.subject.AppendTo(j.rendered[:0], j.values); err == nil {
		err = j.letter.html.Check(j.values)
	}
	if err == nil && j.letter.text != nil {
		err = j.letter.text.Check(j.values)
	}
	if wrong, ok := errors.AsType[*mailmerge.ValueFault](err); ok {
		return j.refuse(row.Line, j.params.Header.Index(wrong.Field), codeOfValue(wrong.Code)), nil
	}
	switch {
	case err != nil:
		return store.MailingLine{}, fmt.Errorf("line %d: %w", row.Line, err)
	case len(bytes.TrimLeftFunc(j.rendered, email.IsInvisible)) == 0:
		return j.refuse(row.Line, -1, CodeSubjectLength), nil
	case j.letter.html.Size(j.values) > email.MaxHTML, j.letter.text != nil && j.letter.text.Size(j.values) > email.MaxHTML:
		return j.refuse(row.Line, -1, CodeBodyTooLarge), nil
	case !j.mayShowNothing:
		return store.MailingLine{}, nil
	}
	if j.rendered, err = j.letter.html.AppendTo(j.rendered[:0], j.values); err != nil {
		return store.MailingLine{}, fmt.Errorf("line %d: %w", row.Line, err)
	}
	if !htmlcheck.Shows(string(j.rendered)) {
		return j.refuse(row.Line, -1, CodeEmptyBody), nil
	}
	return store.MailingLine{}, nil
}

// tokenLike is as long as every token.
const tokenLike = "AAAAAAAAAAAAAAAAAAAAAAAAAA"

// codeOfValue says it as the verdicts do.
func codeOfValue(code string) string {
	switch code {
	case mailmerge.CodeValueAddress, mailmerge.CodeValueHost, mailmerge.CodeValuePath:
		return CodeInvalidLink
	case mailmerge.CodeValueControl, mailmerge.CodeValueNotText:
		return CodeBadCharacter
	case mailmerge.CodeSubjectLength:
		return CodeSubjectLength
	}
	return code
}
