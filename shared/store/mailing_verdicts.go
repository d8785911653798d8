package store

import (
	"context"
	"fmt"
	"iter"
	"strings"

	"github.com/google/uuid"
)

// verdictPage is how many verdicts of either kind are read at once. In between nothing
// is held: a reader may be as slow as it likes.
const verdictPage = 1000

// rejectsSQL reads a mailing's rejected lines by primary key, in its order, and locks
// nothing.
const rejectsSQL = `
SELECT line_no, coalesce(column_name, '') AS column_name, code FROM mailing_rejects
WHERE mailing_id = $1 AND line_no > $2 ORDER BY line_no LIMIT $3`

// MailingVerdicts yields the lines of a mailing that will not be sent to, in order:
// rejected lines, duplicates, and invalid entries, whose column is "email" and whose
// code is the reason in capitals (SYNTAX, DISPOSABLE, MX). An error ends it: ErrNotFound
// when the company has no such mailing.
func (s *Store) MailingVerdicts(ctx context.Context, company, id uuid.UUID) iter.Seq2[RejectedLine, error] {
	return func(yield func(RejectedLine, error) bool) {
		if _, err := s.FindMailing(ctx, company, id); err != nil {
			yield(RejectedLine{}, err)
			return
		}
		rejects := verdictPager{fetch: func(after int) ([]RejectedLine, error) { return s.rejectsAfter(ctx, id, after) }}
		var cursor uuid.UUID
		invalid := verdictPager{fetch: func(int) (page []RejectedLine, err error) {
			page, cursor, err = s.invalidAfter(ctx, company, id, cursor)
			return page, err
		}}
		for {
			reject, err := rejects.peek()
			if err != nil {
				yield(RejectedLine{}, err)
				return
			}
			entry, err := invalid.peek()
			if err != nil {
				yield(RejectedLine{}, err)
				return
			}
			next := &rejects
			if reject == nil || entry != nil && entry.Line < reject.Line {
				next = &invalid
			}
			if reject == nil && entry == nil || !yield(next.take(), nil) {
				return
			}
		}
	}
}

func (s *Store) rejectsAfter(ctx context.Context, mailing uuid.UUID, line int) ([]RejectedLine, error) {
	var page []RejectedLine
	if err := s.db.SelectContext(ctx, &page, rejectsSQL, mailing, line, verdictPage); err != nil {
		return nil, fmt.Errorf("list rejected lines: %w", translate(err))
	}
	return page, nil
}

// invalidAfter returns the invalid entries behind the cursor, and where they end.
func (s *Store) invalidAfter(ctx context.Context, company, mailing, cursor uuid.UUID) ([]RejectedLine, uuid.UUID, error) {
	entries, err := s.MailingEntries(ctx, company, mailing, EntryFilter{Status: EntryInvalid, After: cursor, Limit: verdictPage})
	if err != nil {
		return nil, cursor, err
	}
	page := make([]RejectedLine, len(entries))
	for i, e := range entries {
		page[i] = RejectedLine{Line: e.Line, Column: "email"}
		if e.InvalidReason != nil {
			page[i].Code = codeOfReason(*e.InvalidReason)
		}
		cursor = e.ID
	}
	return page, cursor, nil
}

// codeOfReason is the verdict on an entry that is invalid for the reason.
func codeOfReason(reason string) string { return strings.ToUpper(reason) }

// verdictPager hands out verdicts one by one and fetches a page when it has none left.
type verdictPager struct {
	fetch func(afterLine int) ([]RejectedLine, error)
	page  []RejectedLine
	line  int // of the last one taken
	ended bool
}

// peek returns the next verdict, nil at the end.
func (p *verdictPager) peek() (*RejectedLine, error) {
	if len(p.page) == 0 && !p.ended {
		page, err := p.fetch(p.line)
		if err != nil {
			return nil, err
		}
		p.page, p.ended = page, len(page) < verdictPage
	}
	if len(p.page) == 0 {
		return nil, nil //nolint:nilnil // the end is not an error
	}
	return &p.page[0], nil
}

func (p *verdictPager) take() RejectedLine {
	v := p.page[0]
	p.page, p.line = p.page[1:], v.Line
	return v
}
