package usage

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"email-gateway/shared/store/internal/pg"
)

// newestSQL reads the only row of event_positions. It locks nothing.
const newestSQL = `SELECT newest FROM event_positions WHERE singleton`

// Newest returns the newest position of the feed. While it does not change, there is nothing to count.
func (s *Store) Newest(ctx context.Context) (position int64, err error) {
	return position, pg.Wrap("read the newest position of events", s.db.Get(ctx, &position, newestSQL))
}

// addCompaniesSQL compares both tables by primary key. It waits only for another dispatcher that adds
// the same companies.
const addCompaniesSQL = `
INSERT INTO usage_companies (company_id, counted_from)
SELECT c.id, c.created_at FROM companies c WHERE NOT EXISTS (SELECT FROM usage_companies u WHERE u.company_id = c.id)
ORDER BY c.id LIMIT $1 ON CONFLICT DO NOTHING`

// AddCompanies adds at most limit new companies to usage_companies, so that Fold counts them.
func (s *Store) AddCompanies(ctx context.Context, limit int) error {
	if _, err := s.db.Exec(ctx, addCompaniesSQL, limit); err != nil {
		return fmt.Errorf("add companies to usage: %w", err)
	}
	return nil
}

// Folded is the result of a Fold.
type Folded struct {
	Companies int       `db:"companies"` // companies with something to count
	Last      uuid.UUID `db:"last"`      // the last of these companies
	More      bool      `db:"more"`      // a company has more rows than were read
}

// foldSQL reads the companies after $1 along usage_companies_pkey, and locks those with rows of the feed
// after their cursor. It skips companies that another dispatcher has locked. For each company, it reads
// the next rows along event_feed_position. Positions are assigned in one commit at a time, so no row
// becomes visible below a position that was read. The LIMIT of the test for such rows keeps the planner
// from a join, which would read the feeds of all companies.
//
// It reads events, by primary key, only for rows with events that SES reports: an email counts with the
// first event of each type, even if SES reports it again. A complaint of the type not-spam does not
// count. OFFSET keeps the planner from reading all events for a join.
//
// Rows of usage_days are written by primary key and in its order, as email_gateway_count_usage does.
const foldSQL = `
WITH behind AS MATERIALIZED (
    SELECT u.company_id, u.position FROM usage_companies u
    WHERE u.company_id > $1 AND (SELECT true FROM event_feed f WHERE f.company_id = u.company_id AND f.position > u.position ORDER BY f.position LIMIT 1)
    ORDER BY u.company_id LIMIT $2 FOR NO KEY UPDATE OF u SKIP LOCKED
), next AS MATERIALIZED (
    SELECT b.company_id, f.* FROM behind b CROSS JOIN LATERAL (
        SELECT position, (created_at AT TIME ZONE 'UTC')::date AS day, sent, reported, email_ids, first_seqs, last_seqs
        FROM event_feed WHERE company_id = b.company_id AND position > b.position ORDER BY position LIMIT $3
    ) f
), progress AS MATERIALIZED (
    SELECT company_id, max(position) AS position, count(*) AS n FROM next GROUP BY company_id
), moved AS (
    UPDATE usage_companies u SET position = p.position FROM progress p WHERE u.company_id = p.company_id
), counts AS (
    SELECT company_id, day, coalesce(sent, 0) AS sent, 0 AS delivered, 0 AS bounced, 0 AS complained FROM next WHERE sent > 0
    UNION ALL
    SELECT n.company_id, n.day, 0, (e.type = 'DELIVERED')::int, (e.type = 'BOUNCED')::int, (e.type = 'COMPLAINED')::int
    FROM next n CROSS JOIN LATERAL unnest(n.email_ids, n.first_seqs, n.last_seqs) AS m(id, first, last)
    CROSS JOIN LATERAL (
        SELECT type FROM email_events
        WHERE email_log_id = m.id AND type IN ('DELIVERED', 'BOUNCED', 'COMPLAINED')
          AND NOT (type = 'COMPLAINED' AND coalesce(metadata ->> 'complaintFeedbackType' = 'not-spam', false))
        GROUP BY type HAVING min(seq) BETWEEN m.first AND m.last OFFSET 0
    ) e
    WHERE n.reported > 0
), counted AS (
    INSERT INTO usage_days AS u (company_id, day, sent, delivered, bounced, complained)
    SELECT company_id, day, sum(sent), sum(delivered), sum(bounced), sum(complained) FROM counts GROUP BY company_id, day ORDER BY company_id, day
    ON CONFLICT (company_id, day) DO UPDATE SET sent = u.sent + excluded.sent, delivered = u.delivered + excluded.delivered,
        bounced = u.bounced + excluded.bounced, complained = u.complained + excluded.complained
)
SELECT count(*) AS companies, coalesce((array_agg(company_id ORDER BY company_id DESC))[1], $1) AS last, coalesce(bool_or(n = $3), false) AS more
FROM progress`

// Fold counts events of the companies after the id after, in the order of their ids, in one commit: at
// most companies companies, and rows rows of the feed for each. Each event is counted once, however many
// dispatchers run.
func (s *Store) Fold(ctx context.Context, after uuid.UUID, companies, rows int) (done Folded, err error) {
	err = pg.Write(func(args []any) error { return s.db.GetContext(ctx, &done, foldSQL, args...) }, after, companies, rows)
	return done, pg.Wrap("count events for usage", err)
}
