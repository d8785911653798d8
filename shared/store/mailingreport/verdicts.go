package mailingreport

import (
	"context"
	"fmt"
	"iter"

	"github.com/google/uuid"

	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/mailing"
)

// rejectedLinePage is the number of rejected lines that one statement reads. The names of a line are limited when they are
// written, and so a page is some 100 KiB at most. No connection and no lock is held between two pages, so a slow reader
// costs nothing else.
const rejectedLinePage = 250

// rejectsSQL reads a mailing's rejected lines in the order of the primary key, and locks nothing.
const rejectsSQL = `
SELECT line_no, coalesce(last_line, 0) AS last_line, coalesce(column_name, '') AS column_name, code FROM mailing_rejects
WHERE mailing_id = $1 AND line_no > $2 ORDER BY line_no LIMIT $3`

// emptyFieldsSQL reads the range of the primary key that holds the mailing's entries, as entriesSQL does, and locks
// nothing. It returns a row per empty column, of which a line may have 200: a page may end between two columns of a line.
const emptyFieldsSQL = `
SELECT e.id, c.n, e.line_no, c.column_name, $7 AS code
FROM (SELECT id, line_no, empty_fields FROM mailing_entries
      WHERE id >= $1 AND id >= $2 AND id <= $4 AND (mailing_id = $5) IS TRUE AND empty_fields IS NOT NULL AND status <> 'INVALID'
      ORDER BY id LIMIT $6) e
CROSS JOIN LATERAL unnest(e.empty_fields) WITH ORDINALITY AS c (column_name, n)
WHERE (e.id, c.n) > ($2, $3)
ORDER BY e.id, c.n LIMIT $6`

// emptyCursor is a position in the empty columns of a mailing. The zero value is the beginning.
type emptyCursor struct {
	Entry uuid.UUID `db:"id"`
	N     int64     `db:"n"` // the column within the entry, from 1
}

// MailingVerdicts yields the lines of a mailing that are not sent, with the reason, and the lines with an empty field,
// ordered by line number. Lines that are not sent are rejected lines, duplicates and invalid entries; the column of an
// invalid entry is that of the addresses, and its code is the reason in capitals (SYNTAX, DISPOSABLE, MX). A line that
// is sent with empty fields yields EMPTY_FIELD for each of them. An error ends the sequence; it is pg.ErrNotFound if
// the company has no such mailing.
func (s *Store) MailingVerdicts(ctx context.Context, company, id uuid.UUID) iter.Seq2[mailing.RejectedLine, error] {
	return func(yield func(mailing.RejectedLine, error) bool) {
		m, err := s.mailings.FindMailing(ctx, company, id)
		if err != nil {
			yield(mailing.RejectedLine{}, err)
			return
		}
		var invalid uuid.UUID // a cursor, as empty is
		var empty emptyCursor
		sources := []*rejectedLinePager{
			{fetch: func(after int) ([]mailing.RejectedLine, bool, error) {
				page, err := s.rejectsAfter(ctx, id, after)
				return page, len(page) < rejectedLinePage, err
			}},
			{fetch: func(int) (page []mailing.RejectedLine, last bool, err error) {
				page, invalid, err = s.invalidAfter(ctx, m, invalid)
				return page, len(page) < rejectedLinePage, err
			}},
			{fetch: func(int) (page []mailing.RejectedLine, last bool, err error) {
				page, empty, err = s.emptyAfter(ctx, m, empty)
				return page, len(page) == 0, err
			}},
		}
		if m.EmptyFields == 0 {
			sources = sources[:2]
		}
		for {
			next, err := earliest(sources)
			if err != nil {
				yield(mailing.RejectedLine{}, err)
				return
			}
			if next == nil || !yield(next.take(), nil) {
				return
			}
		}
	}
}

// earliest returns the source with the smallest line number, or nil if all have ended.
func earliest(sources []*rejectedLinePager) (next *rejectedLinePager, err error) {
	line := 0
	for _, source := range sources {
		rejected, err := source.peek()
		switch {
		case err != nil:
			return nil, err
		case rejected != nil && (next == nil || rejected.Line < line):
			next, line = source, rejected.Line
		}
	}
	return next, nil
}

// emptyAfter returns the next page of empty columns after the cursor, and the new cursor.
func (s *Store) emptyAfter(ctx context.Context, m mailing.Mailing, cursor emptyCursor) ([]mailing.RejectedLine, emptyCursor, error) {
	var found []struct {
		emptyCursor
		mailing.RejectedLine
	}
	err := s.db.SelectContext(ctx, &found, emptyFieldsSQL, m.FirstEntry.UUID, cursor.Entry, cursor.N, m.LastEntry.UUID, m.ID, rejectedLinePage, mailing.CodeEmptyField)
	if err != nil {
		return nil, cursor, fmt.Errorf("list empty fields: %w", pg.Translate(err))
	}
	page := make([]mailing.RejectedLine, len(found))
	for i, f := range found {
		page[i], cursor = f.RejectedLine, f.emptyCursor
	}
	return page, cursor, nil
}

func (s *Store) rejectsAfter(ctx context.Context, id uuid.UUID, line int) ([]mailing.RejectedLine, error) {
	var page []mailing.RejectedLine
	if err := s.db.SelectContext(ctx, &page, rejectsSQL, id, line, rejectedLinePage); err != nil {
		return nil, fmt.Errorf("list rejected lines: %w", pg.Translate(err))
	}
	return page, nil
}

// invalidAfter returns the next page of invalid entries after the cursor, and the new cursor.
func (s *Store) invalidAfter(ctx context.Context, m mailing.Mailing, cursor uuid.UUID) ([]mailing.RejectedLine, uuid.UUID, error) {
	entries, err := s.mailings.MailingEntries(ctx, m.CompanyID, m.ID, mailing.EntryFilter{Status: mailing.EntryInvalid, After: cursor, Limit: rejectedLinePage})
	if err != nil {
		return nil, cursor, err
	}
	page := make([]mailing.RejectedLine, len(entries))
	for i, e := range entries {
		page[i] = mailing.RejectedLine{Line: e.Line, Column: m.EmailColumn}
		if e.InvalidReason != nil {
			page[i].Code = mailing.CodeOfReason(*e.InvalidReason)
		}
		cursor = e.ID
	}
	return page, cursor, nil
}

// rejectedLinePager returns rejected lines one by one and fetches the next page when it has none left.
type rejectedLinePager struct {
	fetch func(afterLine int) (page []mailing.RejectedLine, last bool, err error)
	page  []mailing.RejectedLine
	line  int // of the last one returned
	ended bool
}

// peek returns the next rejected line without consuming it, nil at the end.
func (p *rejectedLinePager) peek() (*mailing.RejectedLine, error) {
	if len(p.page) == 0 && !p.ended {
		page, last, err := p.fetch(p.line)
		if err != nil {
			return nil, err
		}
		p.page, p.ended = page, last
	}
	if len(p.page) == 0 {
		return nil, nil //nolint:nilnil // the end is not an error
	}
	return &p.page[0], nil
}

func (p *rejectedLinePager) take() mailing.RejectedLine {
	v := p.page[0]
	p.page, p.line = p.page[1:], v.Line
	return v
}
