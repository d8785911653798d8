package dispatch

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"email-gateway/shared/email"
	"email-gateway/shared/store/deadletter"
	"email-gateway/shared/store/internal/pg"
)

// Backlog has the counts of emails and dead letters that may need an operator.
type Backlog struct {
	Pending     int `db:"pending"`      // outbox rows that wait for the dispatcher
	Unknown     int `db:"unknown"`      // emails whose send outcome is unknown
	DeadLetters int `db:"dead_letters"` // open dead letters
}

// countBacklogSQL counts along email_outbox_lane_claim, email_outbox_open and dead_letters_open, up to $1 each. It locks
// nothing.
const countBacklogSQL = `
SELECT (SELECT count(*) FROM (
            SELECT FROM email_outbox WHERE status = 'PENDING' AND lane_id IS NOT NULL LIMIT $1) p) AS pending,
       (SELECT count(*) FROM (
            SELECT FROM email_outbox WHERE status = 'OUTCOME_UNKNOWN' AND target = 'email:send' LIMIT $1) u) AS unknown,
       (SELECT count(*) FROM (
            SELECT FROM dead_letters WHERE resolved_at IS NULL LIMIT $1) d) AS dead_letters`

// countOpenSQL counts a page of the emails in a status by an index-only scan of email_outbox_open, and locks nothing. Emails
// with the same deadline are in one page.
const countOpenSQL = `
SELECT count(*) AS seen, max(expires_at) AS last FROM (
    SELECT expires_at FROM email_outbox
    WHERE status = $1 AND target = 'email:send' AND expires_at > $2
    ORDER BY expires_at FETCH FIRST $3 ROWS WITH TIES) page`

// countJobsSQL counts the waiting mailing jobs and recipient imports of each lane along email_outbox_lane_claim, and the open
// dead letters along dead_letters_open. It locks nothing.
const countJobsSQL = `
SELECT coalesce((SELECT sum(waiting.n) FROM dispatch_lanes l CROSS JOIN LATERAL (
            SELECT count(*) AS n FROM email_outbox o WHERE o.lane_id = l.id AND o.status = 'PENDING') waiting
        WHERE l.queue = ANY ($1::text[])), 0) AS pending,
       0 AS unknown, (SELECT count(*) FROM dead_letters WHERE resolved_at IS NULL) AS dead_letters`

// countPage is how many emails one statement of CountAll counts, in about 50 ms: no snapshot stays open for long, however many
// emails wait.
const countPage = 100_000

// CountAll is CountBacklog without a limit. It takes half a second per million waiting emails. An email that changes its status
// meanwhile may be counted twice or not at all.
func (s *Store) CountAll(ctx context.Context) (Backlog, error) {
	var b Backlog
	if err := s.db.GetContext(ctx, &b, countJobsSQL, pg.TextArray(email.BulkQueues())); err != nil {
		return Backlog{}, fmt.Errorf("count jobs: %w", pg.Translate(err))
	}
	emails, err := s.countOpen(ctx, email.Pending)
	if err != nil {
		return Backlog{}, err
	}
	b.Pending += emails
	b.Unknown, err = s.countOpen(ctx, email.OutcomeUnknown)
	return b, err
}

func (s *Store) countOpen(ctx context.Context, status email.Status) (total int, err error) {
	var page struct {
		Seen int          `db:"seen"`
		Last sql.NullTime `db:"last"`
	}
	for last := (time.Time{}); ; last = page.Last.Time {
		if err := s.db.GetContext(ctx, &page, countOpenSQL, string(status), last, countPage); err != nil {
			return 0, fmt.Errorf("count emails in %s: %w", status, pg.Translate(err))
		}
		total += page.Seen
		if page.Seen < countPage {
			return total, nil
		}
	}
}

// ExpiringLetters counts the open dead letters that will be deleted soon.
type ExpiringLetters struct {
	Emails int `db:"emails"`
	Bulk   int `db:"bulk"` // of mailings and recipient imports
}

// countExpiringSQL counts along dead_letters_of_emails and dead_letters_age. It locks nothing.
const countExpiringSQL = `
SELECT (SELECT count(*) FROM dead_letters WHERE resolved_at IS NULL AND ` + deadletter.OfEmailSQL + `
            AND created_at < now() - $1 * interval '1 ms') AS emails,
       (SELECT count(*) FROM dead_letters WHERE resolved_at IS NULL AND NOT ` + deadletter.OfEmailSQL + `
            AND created_at < now() - $2 * interval '1 ms') AS bulk`

// CountExpiring counts the open dead letters that will be deleted within the given time.
func (s *Store) CountExpiring(ctx context.Context, within time.Duration) (ExpiringLetters, error) {
	var n ExpiringLetters
	err := s.db.GetContext(ctx, &n, countExpiringSQL, (deadletter.EmailLettersKept - within).Milliseconds(), (deadletter.BulkLettersKept - within).Milliseconds())
	if err != nil {
		return ExpiringLetters{}, fmt.Errorf("count dead letters that expire: %w", pg.Translate(err))
	}
	return n, nil
}

// CountBacklog counts each kind up to limit, because counting a larger number would cost too much.
func (s *Store) CountBacklog(ctx context.Context, limit int) (Backlog, error) {
	var b Backlog
	if err := s.db.GetContext(ctx, &b, countBacklogSQL, limit); err != nil {
		return Backlog{}, fmt.Errorf("count backlog: %w", pg.Translate(err))
	}
	return b, nil
}

// LaneAge is how long the oldest due row of a queue has been due. Lanes of mailings and other lanes have separate values.
type LaneAge struct {
	Queue   string  `db:"queue"`
	Mailing bool    `db:"mailing"`
	Seconds float64 `db:"seconds"`
}

// Age is Seconds as a duration.
func (l LaneAge) Age() time.Duration { return time.Duration(l.Seconds * float64(time.Second)) }

// oldestDueSQL jumps from lane to lane along email_outbox_lane_claim and takes the first due row of each, so its cost is the
// number of lanes with waiting rows and not the number of rows. Of jobs it takes 20 rows, which are the jobs of the default quota
// of running mailings: a job that is taken again and again, because RabbitMQ does not confirm it, is rarely due, and due_at
// keeps since when it waits. It locks nothing. It omits lanes that are not open (paused, held, parked, or of a company that is
// suspended or has paused its mailings), because their emails are meant to wait.
const oldestDueSQL = `
WITH RECURSIVE lane AS (
    (SELECT lane_id FROM email_outbox
     WHERE status IN ('PENDING', 'RETRY_SCHEDULED') AND lane_id IS NOT NULL
     ORDER BY lane_id LIMIT 1)
    UNION ALL
    SELECT (SELECT o.lane_id FROM email_outbox o
            WHERE o.status IN ('PENDING', 'RETRY_SCHEDULED') AND o.lane_id > lane.lane_id
            ORDER BY o.lane_id LIMIT 1)
    FROM lane WHERE lane.lane_id IS NOT NULL
)
SELECT l.queue, l.mailing_id IS NOT NULL AS mailing, extract(epoch FROM now() - min(due.since))::float8 AS seconds
FROM lane
JOIN dispatch_lanes l ON l.id = lane.lane_id
JOIN companies c ON c.id = l.company_id
CROSS JOIN LATERAL (
    (SELECT o.next_at AS since FROM email_outbox o
     WHERE o.lane_id = l.id AND ` + dueSQL + `
     ORDER BY o.next_at, o.id LIMIT 1)
    UNION ALL
    (SELECT o.due_at FROM email_outbox o
     WHERE l.queue IN ('mailing.jobs.process', 'recipients_queue') AND o.lane_id = l.id
       AND o.status IN ('PENDING', 'RETRY_SCHEDULED') AND o.next_at <= now() + ` + leaseSQL + `
     ORDER BY o.next_at, o.id LIMIT 20)
) due
WHERE due.since IS NOT NULL AND l.paused_at IS NULL AND l.held_at IS NULL AND coalesce(l.parked_until <= now(), true) AND c.suspended_at IS NULL
  AND (c.mailings_paused_at IS NULL OR l.mailing_id IS NULL)
GROUP BY l.queue, mailing`

// OldestDue returns an entry for each kind of lane in which a row is due.
func (s *Store) OldestDue(ctx context.Context) ([]LaneAge, error) {
	var ages []LaneAge
	if err := s.db.SelectContext(ctx, &ages, oldestDueSQL); err != nil {
		return nil, fmt.Errorf("look for the oldest due rows: %w", pg.Translate(err))
	}
	return ages, nil
}

// servedQueuesSQL reads the emails with a task along email_outbox_open, which are no more than the windows of the queues permit,
// and locks nothing.
const servedQueuesSQL = `
SELECT DISTINCT l.queue FROM email_outbox o JOIN dispatch_lanes l ON l.id = o.lane_id
WHERE o.status IN ('ENQUEUED', 'PROCESSING') AND o.target = 'email:send' AND o.enqueued_at > now() - $1 * interval '1 ms'`

// ServedQueues returns the queues of emails with an email that was enqueued within the given time and that no worker has
// finished. While emails are due, the window of a queue that dispatchers and workers serve always has such emails.
func (s *Store) ServedQueues(ctx context.Context, within time.Duration) ([]string, error) {
	var queues []string
	if err := s.db.SelectContext(ctx, &queues, servedQueuesSQL, within.Milliseconds()); err != nil {
		return nil, fmt.Errorf("list served queues: %w", pg.Translate(err))
	}
	return queues, nil
}
