package retention

import (
	"context"
	"time"

	"github.com/google/uuid"
)

// DropLogPartition drops a month's partition as a whole. These statements delete the other rows one
// by one: rows in the default partition or in the partition before the first month, and rows of
// companies with a shorter retention. While a company has a longer retention, partitions are dropped
// only after that, so the months are scanned too. purgeCompanyLogsSQL deletes the rows of companies
// with a retention of their own (by company_retention_pkey). A log is never deleted before its
// outbox row (by email_outbox_pkey).
const (
	// It scans email_logs_pkey.
	purgeLogsSQL = `
WITH months AS MATERIALIZED (
    SELECT first_id FROM log_partitions WHERE log = 'email_logs' AND first_id IS NOT NULL AND NOT EXISTS (` + keptLongerSQL + `)
    ORDER BY first_id LIMIT 1
), seen AS MATERIALIZED (
    SELECT l.outbox_id AS id, EXISTS (SELECT FROM company_retention r WHERE r.company_id = l.company_id AND r.logs_days IS NOT NULL) AS own
    FROM email_logs l WHERE l.outbox_id > $1 AND l.outbox_id < ` + beforeMonthsSQL + `
    ORDER BY l.outbox_id LIMIT $3
)` + purgeSeenLogsSQL

	// It scans email_logs_company.
	purgeCompanyLogsSQL = `
WITH seen AS MATERIALIZED (
    SELECT outbox_id AS id, false AS own FROM email_logs
    WHERE company_id = $4 AND outbox_id > $1 AND outbox_id < first_id_at(now() - $2 * interval '1 ms')
    ORDER BY outbox_id LIMIT $3
)` + purgeSeenLogsSQL

	// It scans email_events_pkey and finds the logs by email_logs_pkey.
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
)` + scannedSQL

	// The end of the range to scan: ids older than the age and, unless a company keeps its logs longer,
	// below the first month's partition.
	beforeMonthsSQL = `least(first_id_at(now() - $2 * interval '1 ms'), (SELECT first_id FROM months))`

	// The companies with a retention of logs longer than $2.
	keptLongerSQL = `SELECT FROM company_retention r WHERE r.logs_days * interval '1 day' > $2 * interval '1 ms'`

	purgeSeenLogsSQL = `, past AS MATERIALIZED (
    SELECT seen.id FROM seen WHERE NOT seen.own AND NOT EXISTS (SELECT FROM email_outbox o WHERE o.id = seen.id)
), told AS (
    DELETE FROM email_events e USING past WHERE e.email_log_id = past.id AND e.email_log_id > $1
), gone AS (
    DELETE FROM email_logs l USING past WHERE l.outbox_id = past.id AND l.outbox_id > $1
    RETURNING l.outbox_id
)` + scannedSQL
)

// PurgeLogs reads the next limit logs outside the months' partitions and
// deletes those of emails accepted longer ago than age, with their timelines. It skips companies
// with a retention of their own.
func (s *Store) PurgeLogs(ctx context.Context, age time.Duration, limit int) (Cleaned, error) {
	return s.scan(ctx, scanLogs, everybody, age, limit, purgeLogsSQL)
}

// PurgeCompanyLogs reads the next limit logs of the company and deletes those of
// emails accepted longer ago than age, with their timelines.
func (s *Store) PurgeCompanyLogs(ctx context.Context, company uuid.UUID, age time.Duration, limit int) (Cleaned, error) {
	return s.scan(ctx, scanLogs, company, age, limit, purgeCompanyLogsSQL)
}

// PurgeEvents reads the next limit events outside the months' partitions and deletes those of
// emails accepted longer ago than age. It skips companies with a retention of their own:
// PurgeCompanyLogs deletes their timelines with the logs.
func (s *Store) PurgeEvents(ctx context.Context, age time.Duration, limit int) (Cleaned, error) {
	return s.scan(ctx, scanEvents, everybody, age, limit, purgeEventsSQL)
}
