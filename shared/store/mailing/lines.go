package mailing

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/lib/pq"

	"email-gateway/shared/store/internal/bloom"
	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/internal/pgcopy"
	"email-gateway/shared/store/internal/pgtext"
	"email-gateway/shared/store/quota"
)

// NewEntry is an address of a mailing. IngestMailing removes U+0000 from its texts and replaces
// bytes that are not UTF-8 with U+FFFD: Postgres can store neither.
type NewEntry struct {
	ID            uuid.UUID // UUIDv7, ascending with the lines; the id of the email made from it
	Line          int       // in the file, from 1
	LastLine      int       // 0 or Line if it is a single line; stored only if the row is a duplicate
	Email         string    // at most 255 characters; a longer invalid one is truncated
	Token         string
	InvalidReason string   // "", "syntax" or "disposable"; an invalid entry is kept and never sent
	Fields        []string // in the order of NewMailing.Fields
	Nome          string
	RazaoSocial   string
	ExternalID    string
	CPFCNPJHash   string
	CPFCNPJ       []byte // encrypted; nil = none
	// EmptyFields are the columns that a template uses and this line leaves empty, and the id column if its text does not
	// identify one person. Names beyond maxNames are stored as otherNames. The line is sent nevertheless.
	EmptyFields []string
}

// CodeOfReason returns the error code of the reason why an entry is invalid.
func CodeOfReason(reason string) string { return strings.ToUpper(reason) }

// RejectedLine is a line, or a row of several lines, with its error code. Column is "" if the code refers to the whole line.
type RejectedLine struct {
	Line     int    `db:"line_no"`
	LastLine int    `db:"last_line"` // 0 or Line if it is a single line
	Column   string `db:"column_name"`
	Code     string `db:"code"`
}

// Line is one line of a mailing's file: exactly one of the two fields is set. The caller may reuse
// the value that it points to for the next line.
type Line struct {
	Entry  *NewEntry
	Reject *RejectedLine
}

// CodeDuplicate is the code of a line whose address an earlier line has.
const CodeDuplicate = "DUPLICATE"

// CodeEmptyField is the code of a line that leaves a column empty that a template uses.
const CodeEmptyField = "EMPTY_FIELD"

const maxEntryAddress = 255 // characters: mailing_entries_email_check

// Limits of the lines that wait in memory for the COPY.
const (
	heldRows  = 1000
	heldBytes = 1 << 20
)

// entryWriter writes lines to the database. It writes new addresses by COPY, which is three times
// as fast as any INSERT but fails as a whole if one row violates a unique index. It therefore holds
// lines whose address may have occurred before in memory, and writes them by an INSERT that skips
// duplicates.
type entryWriter struct {
	ctx         context.Context //nolint:containedctx // an entryWriter lives for one call
	tx          pg.SteadyTx
	mailing     uuid.UUID
	emailColumn string
	copyTime    time.Duration
	budget      *quota.Budget

	seen      *bloom.Filter
	copying   *pgcopy.Copy // nil = no COPY is open
	startedAt time.Time
	ids       bloom.Counter // external ids
	taxIDs    bloom.Counter // hashes of rows without an external id
	doubtful  []NewEntry
	rejects   []RejectedLine
	heldBytes int

	line        int // the last one processed
	taken       uuid.UUID
	first, last uuid.UUID // of the entries written
	counts      Counts
	reasons     map[string]int // counts.Invalid by code
}

func newEntryWriter(ctx context.Context, tx pg.SteadyTx, m NewMailing, copyTime time.Duration, budget *quota.Budget) *entryWriter {
	return &entryWriter{
		ctx: ctx, tx: tx, mailing: m.ID, emailColumn: pgtext.WithoutNUL(m.EmailColumn), copyTime: copyTime, budget: budget,
		seen: bloom.NewFilter(), reasons: map[string]int{},
	}
}

// writeAll writes all lines, or returns an error after which the transaction must be rolled back.
// No COPY is open when it returns.
func (w *entryWriter) writeAll(lines iter.Seq2[Line, error]) error {
	for line, err := range lines {
		if err == nil {
			err = w.take(line)
		}
		if err != nil {
			w.abandonCopy()
			return err
		}
	}
	return w.flush()
}

func (w *entryWriter) take(line Line) error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	// The budget is as old as the claim. The check after all lines is exact, but by then they have been written.
	if over := w.budget.Check(quota.MailingRowsPerDay, int64(w.counts.Total)+1); over != nil {
		return over
	}
	switch e, r := line.Entry, line.Reject; {
	case e != nil && r == nil:
		if e.Line <= w.line || bytes.Compare(e.ID[:], w.taken[:]) <= 0 {
			return fmt.Errorf("line %d: lines and ids of entries must ascend", e.Line)
		}
		w.line, w.taken = e.Line, e.ID
		w.counts.Total++
		if err := w.takeEntry(*e); err != nil {
			return err
		}
	case r != nil && e == nil:
		if r.Line <= w.line {
			return fmt.Errorf("line %d: lines must ascend", r.Line)
		}
		w.line = r.Line
		w.counts.Total++
		w.counts.Invalid++
		w.reasons[pgtext.WithoutNUL(r.Code)]++
		rejected := *r
		rejected.Column = limitName(r.Column)
		w.rejects = append(w.rejects, rejected)
		w.heldBytes += len(rejected.Column) + len(rejected.Code)
	default:
		return fmt.Errorf("after line %d: a line is either an entry or rejected", w.line)
	}
	if len(w.doubtful) >= heldRows || len(w.rejects) >= heldRows || w.heldBytes >= heldBytes {
		return w.flush()
	}
	return nil
}

func (w *entryWriter) takeEntry(e NewEntry) error {
	for _, text := range []*string{&e.Email, &e.Token, &e.Nome, &e.RazaoSocial, &e.ExternalID} {
		*text = pgtext.WithoutNUL(*text)
	}
	e.EmptyFields = limitNames(e.EmptyFields)
	if e.InvalidReason != "" && utf8.RuneCountInString(e.Email) > maxEntryAddress {
		e.Email = string([]rune(e.Email)[:maxEntryAddress])
	}
	if seen := w.seen.Add(e.Email); seen || !isASCII(e.Email) {
		e.Fields, e.EmptyFields, e.CPFCNPJ = slices.Clone(e.Fields), slices.Clone(e.EmptyFields), bytes.Clone(e.CPFCNPJ)
		w.doubtful = append(w.doubtful, e)
		w.heldBytes += e.size()
		return nil
	}
	w.count(e)
	return w.copyEntry(&e)
}

func (w *entryWriter) count(e NewEntry) {
	if e.InvalidReason == "" {
		w.counts.Accepted++
		if e.ExternalID != "" { // recipient.ID derives the recipient's id from the same one of the two
			w.ids.Add(e.ExternalID)
		} else {
			w.taxIDs.Add(e.CPFCNPJHash)
		}
		if len(e.EmptyFields) > 0 {
			w.counts.EmptyFields++
		}
	} else {
		w.counts.Invalid++
		w.reasons[CodeOfReason(e.InvalidReason)]++
	}
	if w.first == uuid.Nil || bytes.Compare(e.ID[:], w.first[:]) < 0 {
		w.first = e.ID
	}
	if bytes.Compare(e.ID[:], w.last[:]) > 0 {
		w.last = e.ID
	}
}

func (e *NewEntry) size() int {
	n := 256 + len(e.Email) + len(e.Token) + len(e.Nome) + len(e.RazaoSocial) + len(e.ExternalID) + len(e.CPFCNPJ)
	for _, field := range e.Fields {
		n += len(field)
	}
	for _, name := range e.EmptyFields {
		n += len(name)
	}
	return n
}

func (e *NewEntry) status() string {
	if e.InvalidReason != "" {
		return EntryInvalid
	}
	return EntryPending
}

// fields returns the entry's fields as an array literal of Postgres.
func (e *NewEntry) fields() string { return arrayLiteral(e.Fields) }

// emptyFields returns the names as an array literal, "" if there are none.
func (e *NewEntry) emptyFields() string {
	if len(e.EmptyFields) == 0 {
		return ""
	}
	return arrayLiteral(e.EmptyFields)
}

func arrayLiteral(values []string) string {
	if len(values) == 0 {
		return "{}"
	}
	literal, err := pq.StringArray(values).Value()
	text, ok := literal.(string)
	if err != nil || !ok {
		return "{}" // not reached: strings always have a literal
	}
	return pgtext.WithoutNUL(text)
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}
