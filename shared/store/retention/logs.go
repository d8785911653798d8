package retention

import (
	"context"
	"time"

	"github.com/google/uuid"
)

// A month's partition is dropped whole. These statements delete row by row what dropping
// does not reach: rows in the default partition or in the partition before the first
// month, and rows of companies with a shorter retention. While a company
// has a longer retention, which its partitions then have, the months are scanned
// too. Rows of companies with a retention of their own (by company_retention_pkey) are left to
// purgeCompanyLogsSQL. A log is never deleted before its outbox row (by email_outbox_pkey).
const (
	// It goes along email_logs_pkey.
	purgeLogsSQL = `
WITH months AS MATERIALIZED (
    SELECT first_id FROM log_partitions WHERE log = 'email_logs' AND first_id IS NOT NULL AND NOT EXISTS (` + keptLongerSQL + `)
    ORDER BY first_id LIMIT 1
), seen AS MATERIALIZED (
    SELECT l.outbox_id AS id, EXISTS (SELECT FROM company_retention r WHERE r.company_id = l.company_id AND r.logs_days IS NOT NULL) AS own
    FROM email_logs l WHERE l.outbox_id > $1 AND l.outbox_id < ` + beforeMonthsSQL + `
    ORDER BY l.outbox_id LIMIT $3
)` + purgeSeenLogsSQL

	// It goes along email_logs_company.
	purgeCompanyLogsSQL = `
WITH seen AS MATERIALIZED (
    SELECT outbox_id AS id, false AS own FROM email_logs
    WHERE company_id = $4 AND outbox_id > $1 AND outbox_id < first_id_at(now() - $2 * interval '1 ms')
    ORDER BY outbox_id LIMIT $3
)` + purgeSeenLogsSQL

	// Along email_events_pkey; the logs are found by email_logs_pkey.
	// The events of an email are deleted together.
	purgeEventsSQL = `
WITH months AS MATERIALIZED (
    SELECT first_id FROM log_partitions WHERE log = 'email_events' AND first_id IS NOT NULL AND NOT EXISTS (` + keptLongerSQL + `)
    ORDER BY first_id LIMIT 1
), seen AS MATERIALIZED (
    SELECT email_log_id AS id FROM email_events WHERE email_log_id > $1 AND email_log_id < ` + beforeMonthsSQL + `
    ORDER BY email_log_id LIMIT $3
), past AS MATERIALIZED (
    SELECT DISTINCT seen.id FROM seen
    WHERE NOT EXISTS (SELECT FROM email_outbox o WHERE o.id = seen.id) AND NOT EXISTS (
        SELECT FROM email_logs l JOIN company_retention r ON r.company_id = l.company_id WHERE l.outbox_id = seen.id AND r.logs_days IS NOT NULL)
), gone AS (
    DELETE FROM email_events e USING past WHERE e.email_log_id = past.id AND e.email_log_id > $1
    RETURNING e.seq
)` + walkedSQL

	// The end of the range that is older than the age, or that is in no month's partition.
	beforeMonthsSQL = `least(first_id_at(now() - $2 * interval '1 ms'), (SELECT first_id FROM months))`

	// Somebody wants logs kept for longer than that.
	keptLongerSQL = `SELECT FROM company_retention r WHERE r.logs_days * interval '1 day' > $2 * interval '1 ms'`

	purgeSeenLogsSQL = `, past AS MATERIALIZED (
    SELECT seen.id FROM seen WHERE NOT seen.own AND NOT EXISTS (SELECT FROM email_outbox o WHERE o.id = seen.id)
), told AS (
    DELETE FROM email_events e USING past WHERE e.email_log_id = past.id AND e.email_log_id > $1
), gone AS (
    DELETE FROM email_logs l USING past WHERE l.outbox_id = past.id AND l.outbox_id > $1
    RETURNING l.outbox_id
)` + walkedSQL
)

// PurgeLogs looks at the next limit logs outside the months' partitions and
// deletes those of emails accepted longer ago than age, with their timelines. Companies
// with a retention of their own are left out.
func (s *Store) PurgeLogs(ctx context.Context, age time.Duration, limit int) (Cleaned, error) {
	return s.walk(ctx, walkLogs, everybody, age, limit, purgeLogsSQL)
}

// PurgeCompanyLogs looks at the next limit logs of the company and deletes those of
// emails accepted longer ago than age, with their timelines.
func (s *Store) PurgeCompanyLogs(ctx context.Context, company uuid.UUID, age time.Duration, limit int) (Cleaned, error) {
	return s.walk(ctx, walkLogs, company, age, limit, purgeCompanyLogsSQL)
}

// PurgeEvents looks at the next limit events outside the months' partitions
// and deletes those of emails accepted longer ago than age. Companies with a retention of
// their own are left out: their timelines are deleted with their logs.
func (s *Store) PurgeEvents(ctx context.Context, age time.Duration, limit int) (Cleaned, error) {
	return s.walk(ctx, walkEvents, everybody, age, limit, purgeEventsSQL)
}
