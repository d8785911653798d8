package event

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/lib/pq"

	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/sql"
)

const (
	// rowsPerRead is the number of rows of event_feed that one query reads. A row has the events of up to 256 emails.
	rowsPerRead = 100
	// emailsPerRead limits the emails whose events one query reads. scanned limits the emails that one Read reads,
	// including those without an event of the requested types.
	emailsPerRead = 500
	scanned       = 10_000
)

// Page is a part of a company's feed.
type Page struct {
	Events []Event
	// Next is the cursor of the next page. It also moves past events of other types.
	Next Cursor
	// More means that the feed has rows after Next now.
	More bool
	// Oldest is the oldest valid cursor, and Newest the cursor after all current events.
	Oldest, Newest Cursor
}

// Read returns at most limit of the company's events that follow the cursor and match the filter. It reads a limited
// number of emails, so a page may be short or empty and still have More. With ErrExpired it returns a Page that has Oldest
// and Newest. With ErrNewHistory the call may be repeated.
func (s *Store) Read(ctx context.Context, company uuid.UUID, after Cursor, filter *Filter, limit int) (Page, error) {
	page := Page{Next: after}
	for read := 0; ; {
		rows, err := s.rows(ctx, company, page.Next.Position)
		if err != nil {
			return Page{}, fmt.Errorf("read events: %w", err)
		}
		page.Oldest, page.Newest = Behind(rows[0].Deleted), Behind(rows[0].Newest)
		switch {
		case after.Position > rows[0].Newest:
			return page, s.ahead(ctx, after)
		case after.Position < rows[0].Deleted && after != (Cursor{}):
			return page, ErrExpired
		}
		emails, all := emailsOf(rows, page.Next)
		if len(emails) == 0 && all {
			page.Next, page.More = page.Newest, false
			return page, nil
		}
		found, err := s.events(ctx, company, emails, filter)
		if err != nil {
			return Page{}, fmt.Errorf("read events: %w", err)
		}
		found = slices.DeleteFunc(found, page.Next.covers)
		if room := limit - len(page.Events); len(found) > room {
			page.Events = append(page.Events, found[:room]...)
			page.Next, page.More = page.Events[limit-1].Cursor(), true
			return page, nil
		}
		page.Events = append(page.Events, found...)
		last := emails[len(emails)-1]
		page.Next = Cursor{Position: last.Position, email: last.index, seq: last.last}
		if all {
			page.Next, page.More = page.Newest, false
			return page, nil
		}
		page.More = true
		if read += len(emails); len(page.Events) == limit || read >= scanned {
			return page, nil
		}
	}
}

// aheadSQL reads the only row of event_positions and locks nothing. A dispatcher may have moved newest since rowsSQL read it.
const aheadSQL = `SELECT newest >= $1 OR ` + newHistory + ` FROM event_positions WHERE singleton`

// ahead returns the error for a cursor after the newest position: ErrNewHistory if it may be valid soon, else ErrExpired.
func (s *Store) ahead(ctx context.Context, c Cursor) error {
	var soon bool
	if err := s.db.Get(ctx, &soon, aheadSQL, c.Position); err != nil {
		return fmt.Errorf("compare the history of the event feed: %w", err)
	}
	if soon {
		return ErrNewHistory
	}
	return ErrExpired
}

// Find returns events of the company by their ids, in that order. It leaves out events that are no longer stored.
func (s *Store) Find(ctx context.Context, company uuid.UUID, ids []string) ([]Event, error) {
	emails := make([]feedEmail, len(ids))
	for i, id := range ids {
		var err error
		if emails[i], err = parseID(id); err != nil {
			return nil, err
		}
		emails[i].index = i
	}
	found, err := s.events(ctx, company, emails, nil)
	if err != nil {
		return nil, fmt.Errorf("find events: %w", err)
	}
	return found, nil
}

// feedRow is a row of event_feed with the bounds of the feed. If the feed has no further row, the query returns one
// feedRow without emails.
type feedRow struct {
	Newest    int64          `db:"newest"`
	Deleted   int64          `db:"deleted"`
	Position  int64          `db:"position"`
	EmailIDs  pq.StringArray `db:"email_ids"`
	FirstSeqs pq.Int64Array  `db:"first_seqs"`
	LastSeqs  pq.Int64Array  `db:"last_seqs"`
}

// rowsSQL reads along event_feed_position, and the bounds in the same snapshot, in which all rows up to newest are
// visible. It locks nothing.
const rowsSQL = `
SELECT p.newest, p.deleted, coalesce(f.position, 0) AS position, f.email_ids::text[] AS email_ids, f.first_seqs, f.last_seqs
FROM event_positions p LEFT JOIN LATERAL (
    SELECT position, email_ids, first_seqs, last_seqs FROM event_feed
    WHERE company_id = $1 AND position >= $2 ORDER BY position LIMIT $3
) f ON true
WHERE p.singleton ORDER BY f.position`

func (s *Store) rows(ctx context.Context, company uuid.UUID, from int64) ([]feedRow, error) {
	var rows []feedRow
	if err := s.db.Select(ctx, &rows, rowsSQL, company, max(from, 1), rowsPerRead); err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, pg.ErrNotFound // event_positions always has a row
	}
	return rows, nil
}

// feedEmail is an email of a feedRow with the seqs of its events.
type feedEmail struct {
	Position    int64
	history     int64
	index       int
	id          uuid.UUID
	first, last int
}

// emailsOf returns the emails that have events after the cursor, at most emailsPerRead. all means that the feed has no
// others.
func emailsOf(rows []feedRow, after Cursor) (emails []feedEmail, all bool) {
	for _, row := range rows {
		for i, id := range row.EmailIDs {
			last := int(row.LastSeqs[i])
			if after.covers(Event{Position: row.Position, email: i, Seq: last}) {
				continue
			}
			if len(emails) == emailsPerRead {
				return emails, false
			}
			emails = append(emails, feedEmail{
				Position: row.Position, history: row.Position >> historyBits, index: i, id: uuid.MustParse(id), first: int(row.FirstSeqs[i]), last: last,
			})
		}
	}
	return emails, len(rows) < rowsPerRead
}

// eventsScalars are the scalar parameters of feed_events.sql.
type eventsScalars struct {
	company     uuid.UUID
	first, last uuid.UUID // of the emails
	selected    Filter
}

// eventsParameters are the parameters of feed_events.sql.
var eventsParameters = pg.Parameters[eventsScalars, feedEmail]{
	Scalars: []pg.Scalar[eventsScalars]{
		pg.One("company_id", "uuid", func(s eventsScalars) any { return s.company }),
		pg.One("first_id", "uuid", func(s eventsScalars) any { return s.first }),
		pg.One("last_id", "uuid", func(s eventsScalars) any { return s.last }),
		pg.One("of_emails", "text[]", func(s eventsScalars) any { return pq.Array(s.selected.ofEmails) }),
		pg.One("of_company", "text[]", func(s eventsScalars) any { return pq.Array(s.selected.ofCompany) }),
	},
	Columns: []pg.Column[feedEmail]{
		pg.Each("id", "uuid", pg.UUIDs, idOf),
		pg.Each("first", "bigint", pg.BigInts, func(e *feedEmail) int64 { return int64(e.first) }),
		pg.Each("last", "bigint", pg.BigInts, func(e *feedEmail) int64 { return int64(e.last) }),
	},
}

func idOf(e *feedEmail) uuid.UUID { return e.id }

func (s *Store) events(ctx context.Context, company uuid.UUID, emails []feedEmail, filter *Filter) ([]Event, error) {
	if len(emails) == 0 {
		return nil, nil
	}
	scalars := eventsScalars{company: company}
	scalars.first, scalars.last = pg.IDRange(emails, idOf)
	if filter != nil { // else NULL, which selects all
		scalars.selected = *filter
	}
	var found []struct {
		N int `db:"n"`
		Event
	}
	err := s.db.Select(ctx, &found, sql.FeedEvents, eventsParameters.Arguments(scalars, emails)...)
	if err != nil {
		return nil, err
	}
	events := make([]Event, len(found))
	for i, row := range found {
		events[i] = row.Event
		of := &emails[row.N-1]
		events[i].Position, events[i].History, events[i].email = of.Position, of.history, of.index
	}
	slices.SortStableFunc(events, func(a, b Event) int {
		return cmp.Or(cmp.Compare(a.Position, b.Position), cmp.Compare(a.email, b.email), cmp.Compare(a.Seq, b.Seq))
	})
	return events, nil
}
