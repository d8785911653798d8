package event

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/lib/pq"

	"email-gateway/shared/store/internal/pg"
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
// and Newest.
func (s *Store) Read(ctx context.Context, company uuid.UUID, after Cursor, filter *Filter, limit int) (Page, error) {
	page := Page{Next: after}
	for read := 0; ; {
		rows, err := s.rows(ctx, company, page.Next.Position)
		if err != nil {
			return Page{}, fmt.Errorf("read events: %w", err)
		}
		page.Oldest, page.Newest = Behind(rows[0].Deleted), Behind(rows[0].Newest)
		if after.Position > rows[0].Newest || after.Position < rows[0].Deleted && after != (Cursor{}) {
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

// Find returns events of the company by their ids, in that order. It leaves out events that are no longer stored.
func (s *Store) Find(ctx context.Context, company uuid.UUID, ids []string) ([]Event, error) {
	emails := make([]feedEmail, len(ids))
	for i, id := range ids {
		emailID, seq, err := ParseID(id)
		if err != nil {
			return nil, err
		}
		emails[i] = feedEmail{index: i, id: emailID, first: seq, last: seq}
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
			emails = append(emails, feedEmail{Position: row.Position, index: i, id: uuid.MustParse(id), first: int(row.FirstSeqs[i]), last: last})
		}
	}
	return emails, len(rows) < rowsPerRead
}

// eventsSQL reads events, logs and outbox rows by primary key, and the aggregates along outbox_aggregates_outbox. $5
// and $6 are the smallest and the greatest id, which select the partitions. It reads events of the company by primary
// key too: each of them is a single event with seq 1. It locks nothing.
const eventsSQL = `
SELECT t.n AS n, e.email_log_id AS email_id, e.seq, false AS of_company, e.type, e.metadata, e.created_at,
       l.recipient, l.request_id, l.external_id, l.tags, a.aggregate_type, a.aggregate_id, a.event_type,
       substring(o.payload ->> 'htmlRef' FROM '^mailing:([0-9a-f-]{36})$')::uuid AS mailing_id
FROM unnest($1::uuid[], $2::bigint[], $3::bigint[]) WITH ORDINALITY AS t(id, first, last, n)
JOIN email_events e ON e.email_log_id = t.id AND e.seq BETWEEN t.first AND t.last AND e.email_log_id BETWEEN $5 AND $6
JOIN email_logs l ON l.outbox_id = t.id AND l.outbox_id BETWEEN $5 AND $6 AND l.company_id = $7
LEFT JOIN email_outbox o ON o.id = t.id AND o.company_id = $7
LEFT JOIN outbox_aggregates a ON a.outbox_id = t.id AND a.company_id = $7
WHERE $4::text[] IS NULL OR e.type LIKE ANY ($4)
UNION ALL
SELECT t.n, c.id, 1, true, c.type, c.metadata, c.created_at, '', '', NULL, NULL, NULL, NULL, NULL, NULL
FROM unnest($1::uuid[], $2::bigint[], $3::bigint[]) WITH ORDINALITY AS t(id, first, last, n)
JOIN company_events c ON c.id = t.id AND c.company_id = $7
WHERE t.first = 1 AND t.last = 1 AND ($8::text[] IS NULL OR c.type LIKE ANY ($8))
ORDER BY 1, 3`

func (s *Store) events(ctx context.Context, company uuid.UUID, emails []feedEmail, filter *Filter) ([]Event, error) {
	if len(emails) == 0 {
		return nil, nil
	}
	ids, firsts, lasts := make([]string, len(emails)), make([]int64, len(emails)), make([]int64, len(emails))
	for i, e := range emails {
		ids[i], firsts[i], lasts[i] = e.id.String(), int64(e.first), int64(e.last)
	}
	var selected Filter // NULL, which selects all
	if filter != nil {
		selected = *filter
	}
	var found []struct {
		N int `db:"n"`
		Event
	}
	err := s.db.Select(ctx, &found, eventsSQL, pq.Array(ids), pq.Array(firsts), pq.Array(lasts), pq.Array(selected.ofEmails), slices.Min(ids), slices.Max(ids), company, pq.Array(selected.ofCompany))
	if err != nil {
		return nil, err
	}
	events := make([]Event, len(found))
	for i, row := range found {
		events[i] = row.Event
		events[i].Position, events[i].email = emails[row.N-1].Position, emails[row.N-1].index
	}
	slices.SortStableFunc(events, func(a, b Event) int {
		return cmp.Or(cmp.Compare(a.Position, b.Position), cmp.Compare(a.email, b.email), cmp.Compare(a.Seq, b.Seq))
	})
	return events, nil
}
