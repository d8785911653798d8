package mailing

import (
	"errors"
	"io"
	"iter"

	"email-gateway/api/internal/csvfile"
	"email-gateway/shared/email"
	"email-gateway/shared/mailmerge"
	mailingstore "email-gateway/shared/store/mailing"
	"email-gateway/shared/template"
)

// CodeNoRows: the file has only a header.
const CodeNoRows = "NO_ROWS"

// Lines validates the remaining rows of a file. An unreadable row yields a validation result. An
// error ends the iteration; it is a *csvfile.FileError, an error of the storage, or an internal
// fault. A line is valid until the next one.
func Lines(r *Reading, j *Validator) iter.Seq2[mailingstore.Line, error] {
	return func(yield func(mailingstore.Line, error) bool) {
		for n := 0; ; n++ {
			line, err := next(r, j)
			switch {
			case errors.Is(err, io.EOF) && n == 0:
				err = &csvfile.FileError{Code: CodeNoRows, Message: "has a header and no rows"}
			case errors.Is(err, io.EOF):
				return
			}
			if !yield(line, err) || err != nil {
				return
			}
		}
	}
}

func next(r *Reading, j *Validator) (mailingstore.Line, error) {
	row, err := r.Next()
	if bad, ok := errors.AsType[*csvfile.RowError](err); ok {
		j.reject = mailingstore.RejectedLine{Line: bad.Line, LastLine: bad.LastLine, Column: shortColumn(bad.Column), Code: bad.Code}
		return mailingstore.Line{Reject: &j.reject}, nil
	}
	if err != nil {
		return mailingstore.Line{}, err
	}
	return j.Validate(row)
}

// searchedLines limits how many lines of a file are searched for rows to render before the file is ingested: an ingest has a
// time limit and its own places, the search has neither.
const searchedLines = 10_000

// firstLines is Lines up to searchedLines.
func firstLines(r *Reading, j *Validator) iter.Seq2[mailingstore.Line, error] {
	return func(yield func(mailingstore.Line, error) bool) {
		n := 0
		for line, err := range Lines(r, j) {
			if n++; !yield(line, err) || n == searchedLines {
				return
			}
		}
	}
}

// ErrNoValidRow: none of the rows that were searched is valid.
var ErrNoValidRow = errors.New("the file has no valid row among its first 10,000")

// Rendered is the rendered email of one row.
type Rendered struct {
	Subject, HTML, Text string
}

// FirstValid reads up to the first valid row, or at most 10,000 lines, and returns a function that renders it with another
// token and unsubscribe link, for test emails. The function is valid until the next row is
// validated.
func FirstValid(r *Reading, j *Validator) (func(token, link string) (Rendered, error), error) {
	for line, err := range firstLines(r, j) {
		switch {
		case err != nil:
			return nil, err
		case line.Entry != nil && line.Entry.InvalidReason == "":
			return j.renderAgain, nil
		}
	}
	return nil, ErrNoValidRow
}

func (v *Validator) renderAgain(token, link string) (Rendered, error) {
	if v.stored != nil {
		made, err := v.stored.row.Render(template.Values{Email: v.entry.Email, Token: token, UnsubscribeURL: link, Fields: v.entry.Fields})
		return Rendered(made), err
	}
	before := v.values[mailmerge.ValueUnsubscribeURL]
	v.values[mailmerge.ValueToken], v.values[mailmerge.ValueUnsubscribeURL] = token, link
	defer func() { v.values[mailmerge.ValueUnsubscribeURL] = before }()
	subject, err := v.templates.subject.AppendTo(nil, v.values)
	if err != nil {
		return Rendered{}, err
	}
	made := Rendered{Subject: email.Part(string(subject))}
	for _, body := range []struct {
		bound *mailmerge.Bound
		into  *string
	}{{v.templates.html, &made.HTML}, {v.templates.text, &made.Text}} {
		if body.bound == nil {
			continue
		}
		text, err := body.bound.AppendTo(nil, v.values)
		if err != nil {
			return Rendered{}, err
		}
		*body.into = email.Part(string(text))
	}
	return made, nil
}
