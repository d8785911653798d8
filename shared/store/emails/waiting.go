package emails

import (
	"context"

	"github.com/google/uuid"
)

// waitingScan is how many waiting emails of a company one request reads. It is larger than ListScan because a waiting
// email is read from one table. It covers the scheduled emails of most companies; a company with more is searched in
// steps.
const waitingScan = 20000

// waitingIDsSQL reads the company's emails that wait for their time or for the dispatcher, along
// email_outbox_lane_claim, of all its lanes, at most $5 in all. It returns the newest $6 that have the status and the
// tag. A row with reached = true means that there are $5 or more, so that the result may be incomplete. It locks
// nothing.
//
// The LIMIT is below the filters of tag and range, so that it bounds the rows that are read.
const waitingIDsSQL = `
WITH waiting AS MATERIALIZED (
    SELECT o.id, o.target = 'email:send' AND o.status = $7 AND o.id < $2 AND o.id >= $3 AND ($4 = '' OR coalesce(o.payload -> 'tags' ? $4, false)) AS fits
    FROM (SELECT o.id, o.target, o.status, o.payload
          FROM dispatch_lanes lane
          CROSS JOIN LATERAL (
              SELECT id, target, status, payload FROM email_outbox
              WHERE lane_id = lane.id AND status IN ('PENDING', 'RETRY_SCHEDULED')
              ORDER BY next_at, id LIMIT $5) o
          WHERE lane.company_id = $1
          LIMIT $5) o
)
(SELECT id, false AS reached FROM waiting WHERE fits ORDER BY id DESC LIMIT $6)
UNION ALL
(SELECT id, true FROM waiting OFFSET $5 - 1 LIMIT 1)`

// waitingIDs searches emails of a status that email_outbox_lane_claim contains. It finds a scheduled email in one
// request, however many newer emails there are. Its order and cursor are those of stepIDs, so two pages of a list may
// come from different functions.
//
// Without a tag stepIDs runs first: it costs less, and in a backlog it fills the page.
func (s *Store) waitingIDs(ctx context.Context, company, before uuid.UUID, f Filter, limit int) (ids []uuid.UUID, next uuid.UUID, err error) {
	if f.Tag == "" {
		if ids, next, err = s.stepIDs(ctx, company, before, f, limit); err != nil || len(ids) == limit || next == uuid.Nil {
			return ids, next, err
		}
	}
	waiting, reached, err := s.selectStep(ctx, waitingIDsSQL, company, before, f.From, f.Tag, waitingScan, limit, string(f.Status))
	switch {
	case err != nil:
		return nil, uuid.Nil, err
	case reached == uuid.Nil && len(waiting) == limit:
		return waiting, waiting[limit-1], nil
	case reached == uuid.Nil:
		return waiting, uuid.Nil, nil
	case f.Tag == "": // stepIDs has already run
		return ids, next, nil
	}
	return s.stepIDs(ctx, company, before, f, limit)
}
