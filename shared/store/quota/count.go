package quota

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/store/internal/pg"
)

// maxScheduled is how many scheduled emails of a company requests count by themselves: email_gateway_count_scheduled has the
// same number.
const maxScheduled = 100_000

// dueCountsSQL finds the companies whose scheduled emails requests do not count, and whose last count is too old. It
// reads quota_totals and locks nothing. A company with less than a quarter of its quota left may be refused because of
// emails that have been sent. It is counted 10 s, and 10 µs for each of its emails, after the last count: not more than
// 5 % of the time of each dispatcher. The numbers of others are only displayed. The time is the epoch where a request
// could not count.
const dueCountsSQL = `
SELECT t.company_id FROM quota_totals t CROSS JOIN quota_defaults q LEFT JOIN company_quotas c ON c.company_id = t.company_id
CROSS JOIN LATERAL (SELECT coalesce(c.scheduled_emails, q.scheduled_emails) AS most) l
WHERE t.scheduled_at = 'epoch' OR t.scheduled > $1 AND coalesce(t.scheduled_at
    + CASE WHEN l.most > 0 AND t.scheduled > l.most - l.most / 4 THEN interval '10 s' + t.scheduled * interval '10 us' ELSE interval '15 min' END < now(), true)
ORDER BY t.company_id`

// DueCounts returns the companies whose scheduled emails Count has to count.
func (s *Store) DueCounts(ctx context.Context) ([]uuid.UUID, error) {
	var due []uuid.UUID
	if err := s.db.SelectContext(ctx, &due, dueCountsSQL, maxScheduled); err != nil {
		return nil, fmt.Errorf("find scheduled emails to count: %w", pg.Translate(err))
	}
	return due, nil
}

// count is a count of a company's scheduled emails.
type count struct {
	company uuid.UUID
	Used    int64      `db:"used"`         // the number in use when the count began
	At      *time.Time `db:"scheduled_at"` // the time of the count before it
	Newest  uuid.UUID  `db:"newest"`       // emails from this id on are not counted: they are added to Used meanwhile

	Lane      int64      `db:"lane"` // the position that is reached
	Due       *time.Time `db:"due"`
	Mail      *uuid.UUID `db:"mail"`
	Seen      int        `db:"seen"` // emails of the last page
	Scheduled int64      `db:"scheduled"`
}

// beginCountSQL reads the row of quota_totals by primary key, and the company's deltas, in one snapshot.
const beginCountSQL = `
SELECT t.scheduled + (SELECT coalesce(sum(d.scheduled), 0)::bigint FROM quota_deltas d WHERE d.company_id = $1) AS used, t.scheduled_at,
       first_id_at(clock_timestamp()) AS newest
FROM quota_totals t WHERE t.company_id = $1`

func (s *Store) beginCount(ctx context.Context, company uuid.UUID) (*count, error) {
	c := count{company: company}
	return &c, s.db.GetContext(ctx, &c, beginCountSQL, company)
}

// countPageSQL reads what email_gateway_scheduled_page reads, and locks nothing.
const countPageSQL = `
SELECT p.lane, p.due, p.mail, p.seen, p.scheduled + $7::bigint AS scheduled
FROM email_gateway_scheduled_page($1, $2, $3, $4, $5, $6) p`

// next counts a page, and reports whether it was the last one.
func (c *count) next(ctx context.Context, s *Store, page int) (last bool, err error) {
	err = s.db.GetContext(ctx, c, countPageSQL, c.company, c.Newest, page, c.Lane, c.Due, c.Mail, c.Scheduled)
	return err == nil && c.Seen < page, err
}

// endCountSQL updates the company's row of quota_totals by primary key, unless the emails have been counted meanwhile.
// It replaces the number that was in use when the count began. What has been added since stays added, whether it is
// folded or not.
const endCountSQL = `
UPDATE quota_totals SET scheduled = scheduled + $2::bigint - $3::bigint, scheduled_at = clock_timestamp()
WHERE company_id = $1 AND scheduled_at IS NOT DISTINCT FROM $4`

func (c *count) end(ctx context.Context, s *Store) error {
	_, err := s.db.Exec(ctx, endCountSQL, c.company, c.Scheduled, c.Used, c.At)
	return err
}

// Count counts the scheduled emails of a company, a page of them at a time. No request waits for it: it locks the
// company's quotas only to write the number. That may be off by the emails that are accepted at the moment in which the
// count begins, and by those that are moved to another time while it runs. Any number of processes may count: the first
// result is written.
func (s *Store) Count(ctx context.Context, company uuid.UUID, page int) error {
	c, err := s.beginCount(ctx, company)
	for last := false; err == nil && !last; {
		last, err = c.next(ctx, s, page)
	}
	if err == nil {
		err = c.end(ctx, s)
	}
	if err != nil {
		return fmt.Errorf("count scheduled emails: %w", pg.Translate(err))
	}
	return nil
}
