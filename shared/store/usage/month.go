// Package usage counts the usage of companies by UTC day: emails, what SES reports about them, mailings
// and bytes. GET /v1/usage and gatewayctl read it, and the dispatcher's usage folder writes it.
// schema/migrations/00041_usage.sql describes where each number is counted.
package usage

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/store/internal/pg"
)

// Store runs the statements. It is safe for concurrent use.
type Store struct{ db *pg.DB }

// New returns a Store that uses the connections of db.
func New(db *pg.DB) *Store { return &Store{db: db} }

// Counts are numbers of emails, mailings and bytes.
type Counts struct {
	Accepted   int64 `db:"accepted" json:"accepted"`
	Sent       int64 `db:"sent" json:"sent"`
	Delivered  int64 `db:"delivered" json:"delivered"`
	Bounced    int64 `db:"bounced" json:"bounced"`
	Complained int64 `db:"complained" json:"complained"`
	Mailings   int64 `db:"mailings" json:"mailings"`
	// Bytes of HTML and text of emails, and of files and templates of mailings.
	Bytes int64 `db:"bytes" json:"bytes"`
}

func (c *Counts) add(more Counts) {
	c.Accepted += more.Accepted
	c.Sent += more.Sent
	c.Delivered += more.Delivered
	c.Bounced += more.Bounced
	c.Complained += more.Complained
	c.Mailings += more.Mailings
	c.Bytes += more.Bytes
}

// Day is the usage of one UTC day.
type Day struct {
	Date time.Time `db:"day"`
	Counts
}

// Month is what a company used in a month.
type Month struct {
	Begin time.Time // its first moment, in UTC
	// CountedFrom is when the counting of the company's usage began.
	CountedFrom time.Time
	// Final: the month is over and completely counted.
	Final bool
	Days  []Day // from the first counted one to the last, or today
	Total Counts
}

// The errors for a month without usage.
var (
	ErrFuture    = errors.New("the month has not begun")
	ErrUncounted = errors.New("usage was not counted in the month")
)

// finalAfter is how long after its end a month becomes final: longer than the gateway's own
// transactions.
const finalAfter = time.Hour

// stateSQL finds the company by primary key in two tables. The month is final when the rows that were written in it are
// counted. It checks quota_deltas by primary key, event_feed after the cursor along event_feed_position, and rows of
// event_feed without a position along event_feed_waiting: each has the rows of some seconds. It locks nothing.
const stateSQL = `
SELECT b.begin, coalesce(u.counted_from, c.created_at) AS counted_from, b.begin > now() AS future,
       b.over + $3 * interval '1 ms' < now() AND u.company_id IS NOT NULL
       AND NOT EXISTS (SELECT FROM quota_deltas q WHERE q.company_id = $1 AND q.day < (b.over AT TIME ZONE 'UTC')::date AND (q.emails > 0 OR q.body_bytes > 0))
       AND NOT EXISTS (SELECT FROM event_feed f WHERE f.company_id = $1 AND f.position > u.position AND f.created_at < b.over)
       AND NOT EXISTS (SELECT FROM event_feed f WHERE f.company_id = $1 AND f.position IS NULL AND f.created_at < b.over AND f.xid >= (
           SELECT CASE WHEN from_xid <= pg_snapshot_xmax(pg_current_snapshot()) THEN from_xid ELSE '0' END FROM event_positions)) AS final
FROM companies c LEFT JOIN usage_companies u ON u.company_id = c.id
CROSS JOIN LATERAL (SELECT date_trunc('month', coalesce($2, now()), 'UTC') AS begin) m
CROSS JOIN LATERAL (SELECT m.begin, (m.begin AT TIME ZONE 'UTC' + interval '1 month') AT TIME ZONE 'UTC' AS over) b
WHERE c.id = $1`

// daysSQL reads a row per day along usage_days_pkey, and the mailings of each day along mailings_company. It locks
// nothing. The numbers of the current day are about half a minute old.
const daysSQL = `
SELECT d.day, coalesce(u.accepted, 0) AS accepted, coalesce(u.sent, 0) AS sent, coalesce(u.delivered, 0) AS delivered, coalesce(u.bounced, 0) AS bounced,
       coalesce(u.complained, 0) AS complained, m.mailings, coalesce(u.body_bytes, 0) + m.file_bytes AS bytes
FROM (
    SELECT n::date AS day FROM generate_series(
        greatest($2::timestamptz, $3::timestamptz) AT TIME ZONE 'UTC', least($2::timestamptz AT TIME ZONE 'UTC' + interval '1 month' - interval '1 s', now() AT TIME ZONE 'UTC'),
        interval '1 day') n
) d
LEFT JOIN usage_days u ON u.company_id = $1 AND u.day = d.day
     AND u.day >= ($2::timestamptz AT TIME ZONE 'UTC')::date AND u.day < ($2::timestamptz AT TIME ZONE 'UTC' + interval '1 month')::date
CROSS JOIN LATERAL (
    SELECT count(*) AS mailings, coalesce(sum(file_bytes), 0)::bigint AS file_bytes FROM mailings
    WHERE company_id = $1 AND id >= first_id_at(d.day::timestamp AT TIME ZONE 'UTC') AND id < first_id_at((d.day + 1)::timestamp AT TIME ZONE 'UTC') AND NOT dry_run
) m
ORDER BY d.day`

// Month returns the usage of a company in the month of at; the zero time is now. With ErrFuture and
// ErrUncounted it returns a Month with Begin and CountedFrom. It returns pg.ErrNotFound if there is no
// such company.
func (s *Store) Month(ctx context.Context, company uuid.UUID, at time.Time) (Month, error) {
	var state struct {
		Begin       time.Time `db:"begin"`
		CountedFrom time.Time `db:"counted_from"`
		Future      bool      `db:"future"`
		Final       bool      `db:"final"`
	}
	var of *time.Time
	if !at.IsZero() {
		of = &at
	}
	if err := s.db.Get(ctx, &state, stateSQL, company, of, finalAfter.Milliseconds()); err != nil {
		return Month{}, fmt.Errorf("read usage: %w", err)
	}
	m := Month{Begin: state.Begin.UTC(), CountedFrom: state.CountedFrom.UTC(), Final: state.Final, Days: []Day{}}
	switch {
	case state.Future:
		return m, ErrFuture
	case !m.CountedFrom.Before(m.Begin.AddDate(0, 1, 0)):
		return m, ErrUncounted
	}
	firstDay := m.CountedFrom.Truncate(24 * time.Hour) // Go's zero time begins a UTC day
	if err := s.db.Select(ctx, &m.Days, daysSQL, company, m.Begin, firstDay); err != nil {
		return Month{}, fmt.Errorf("read usage: %w", err)
	}
	for _, d := range m.Days {
		m.Total.add(d.Counts)
	}
	return m, nil
}
