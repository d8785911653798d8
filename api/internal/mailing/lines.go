package mailing

import (
	"errors"
	"io"
	"iter"

	"email-gateway/api/internal/csvfile"
	"email-gateway/shared/mailmerge"
	"email-gateway/shared/store"
)

// CodeNoRows: there is nothing below the header.
const CodeNoRows = "NO_ROWS"

// Lines judges the rest of a file row by row. A row that cannot be read is a verdict
// like any other; an error that ends the iteration is a *csvfile.FileError, the
// storage's, or a fault of the gateway. A line is valid until the next one.
func Lines(r *Reading, j *Judge) iter.Seq2[store.MailingLine, error] {
	return func(yield func(store.MailingLine, error) bool) {
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

func next(r *Reading, j *Judge) (store.MailingLine, error) {
	row, err := r.Next()
	if bad, ok := errors.AsType[*csvfile.RowError](err); ok {
		j.reject = store.RejectedLine{Line: bad.Line, Column: shortColumn(bad.Column), Code: bad.Code}
		return store.MailingLine{Reject: &j.reject}, nil
	}
	if err != nil {
		return store.MailingLine{}, err
	}
	return j.Judge(row)
}

// ErrNoGoodRow: no row of the file can be sent to.
var ErrNoGoodRow = errors.New("no row of the file can be sent to")

// Rendered is the letter of one row, ready to be sent.
type Rendered struct {
	Subject, HTML, Text string
}

// FirstGood reads on to the first row that can be sent to, and returns what renders
// it: with a token and an unsubscribe link that are not the recipient's own, for
// others to look at. It may be called until the next row is judged.
func FirstGood(r *Reading, j *Judge) (func(token, link string) (Rendered, error), error) {
	for line, err := range Lines(r, j) {
		switch {
		case err != nil:
			return nil, err
		case line.Entry != nil && line.Entry.InvalidReason == "":
			return j.renderAgain, nil
		}
	}
	return nil, ErrNoGoodRow
}

func (j *Judge) renderAgain(token, link string) (Rendered, error) {
	before := j.values[mailmerge.ValueUnsubscribeURL]
	j.values[mailmerge.ValueToken], j.values[mailmerge.ValueUnsubscribeURL] = token, link
	defer func() { j.values[mailmerge.ValueUnsubscribeURL] = before }()
	subject, err := j.letter.subject.AppendTo(nil, j.values)
	if err != nil {
		return Rendered{}, err
	}
	html, err := j.letter.html.AppendTo(nil, j.values)
	if err != nil {
		return Rendered{}, err
	}
	var text []byte
	if j.letter.text != nil {
		if text, err = j.letter.text.AppendTo(nil, j.values); err != nil {
			return Rendered{}, err
		}
	}
	return Rendered{Subject: string(subject), HTML: string(html), Text: string(text)}, nil
}
