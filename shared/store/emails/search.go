package emails

import (
	"context"

	"github.com/google/uuid"

	"email-gateway/shared/email"
)

// pageIDs returns ids of emails that may be on the page, found by the most selective filter, and the cursor of the next
// page if this one does not fill up; uuid.Nil means that there is none.
func (s *Store) pageIDs(ctx context.Context, company, before uuid.UUID, f Filter, limit int) (ids []uuid.UUID, next uuid.UUID, err error) {
	scan := limit // pageRowsSQL applies all filters to these ids
	if f.Delivery != "" || !f.UpdatedAfter.IsZero() {
		limit = max(ListScan, limit) // only pageRowsSQL applies these filters
	}
	if f.Status != "" || f.Tag != "" || f.AboutType != "" {
		scan = ListScan
	}
	scan = max(scan, limit)
	switch {
	case f.AboutType != "":
		err = s.db.SelectContext(ctx, &ids, aboutIDsSQL, company, before, f.From, f.AboutType, f.AboutID, f.EventType, scan)
	case f.Recipient != "" || f.ExternalID != "" || f.RequestID != "":
		err = s.db.SelectContext(ctx, &ids, searchIDsSQL, company, before, f.From, scan, ListScan, f.Recipient, f.ExternalID, f.RequestID)
	case isProblem(f.Delivery):
		err = s.db.SelectContext(ctx, &ids, problemIDsSQL, company, before, f.From, string(f.Delivery), scan)
	case f.Status == email.Pending || f.Status == email.RetryScheduled:
		return s.waitingIDs(ctx, company, before, f, limit)
	case f.Tag != "":
		return s.taggedIDs(ctx, company, before, f, scan, limit)
	case f.Status != "":
		return s.stepIDs(ctx, company, before, f, limit)
	default:
		err = s.db.SelectContext(ctx, &ids, listIDsSQL, company, before, f.From, scan)
	}
	if len(ids) == scan {
		next = ids[scan-1]
	}
	return ids, next, err
}

// listIDsSQL scans email_outbox_emails and email_logs_company from the cursor down and merges the results by id, so
// that the list includes emails that no worker has received yet. Without From it probes every partition of email_logs
// once. It locks nothing.
const listIDsSQL = `
SELECT id FROM (
    (SELECT outbox_id AS id FROM email_logs WHERE company_id = $1 AND outbox_id < $2 AND outbox_id >= $3 ORDER BY outbox_id DESC LIMIT $4)
    UNION
    (SELECT id FROM email_outbox WHERE company_id = $1 AND id < $2 AND id >= $3 AND target = 'email:send' ORDER BY id DESC LIMIT $4)
) merged ORDER BY id DESC LIMIT $4`

// aboutIDsSQL reads the emails of one aggregate, which are few, by outbox_aggregates_pkey. It locks nothing.
const aboutIDsSQL = `
SELECT outbox_id FROM outbox_aggregates
WHERE company_id = $1 AND aggregate_type = $4 AND aggregate_id = $5 AND ($6 = '' OR event_type = $6)
  AND outbox_id < $2 AND outbox_id >= $3
ORDER BY outbox_id DESC LIMIT $7`

// searchIDsSQL searches by email_logs_recipient, email_logs_external or email_logs_request, from the cursor down, and
// adds due emails without a log: unreceivedSQL. It locks nothing.
const searchIDsSQL = `
SELECT id FROM (
    (SELECT outbox_id AS id FROM email_logs
     WHERE company_id = $1 AND outbox_id < $2 AND outbox_id >= $3
       AND ($6 = '' OR lower(recipient) = lower($6)) AND ($7 = '' OR external_id = $7) AND ($8 = '' OR request_id = $8)
     ORDER BY outbox_id DESC LIMIT $4)
    UNION
    (SELECT id FROM (` + unreceivedSQL + `) unreceived
     WHERE id < $2 AND id >= $3
       AND ($6 = '' OR lower(payload ->> 'to') = lower($6)) AND ($7 = '' OR payload #>> '{recipient,externalId}' = $7) AND ($8 = '' OR request_id = $8)
     ORDER BY id DESC LIMIT $4)
) found ORDER BY id DESC LIMIT $4`

// unreceivedSQL selects the company's emails that a worker may not have received yet. Only these have no log: a
// scheduled email gets its log when it is accepted. So they are due, or will be within a minute if a retry or a pause
// has delayed them.
//
// Emails that wait for the dispatcher are read along email_outbox_lane_claim, the newest of each lane, at most $5 in
// all. If the backlog is longer, an older email is found once a worker has received it. The lanes are those of single
// emails, of running mailings (QUEUED is also the state between two parts of an expansion), of FAILED mailings, whose
// emails wait until the mailing is resumed, and of mailings that are being finalized. Emails on a task queue are read
// along email_outbox_open, for all companies: the queues' windows keep them few, and without the LIMIT the planner may
// read all of the company's emails.
const unreceivedSQL = `
    (SELECT o.id, o.payload, o.request_id
     FROM (SELECT id FROM dispatch_lanes
           WHERE company_id = $1 AND queue IN ('email:send:high', 'email:send', 'email:send:low') AND mailing_id IS NULL
           UNION ALL
           SELECT l.id FROM mailings m
           JOIN dispatch_lanes l ON l.company_id = m.company_id AND l.queue = 'email:send:low' AND l.mailing_id = m.id
           WHERE m.company_id = $1 AND (m.status IN ('QUEUED', 'PENDING', 'PROCESSING', 'SENDING', 'PAUSED', 'FAILED') OR m.settling IS NOT NULL)) lane
     CROSS JOIN LATERAL (
         SELECT id, payload, request_id FROM email_outbox
         WHERE lane_id = lane.id AND status IN ('PENDING', 'RETRY_SCHEDULED') AND next_at <= now() + interval '1 minute'
         ORDER BY next_at DESC, id DESC LIMIT $5) o
     LIMIT $5)
    UNION ALL
    (SELECT id, payload, request_id
     FROM (SELECT id, company_id, payload, request_id FROM email_outbox
           WHERE status = 'ENQUEUED' AND target = 'email:send' ORDER BY status, expires_at LIMIT 20000) enqueued
     WHERE company_id = $1)`
