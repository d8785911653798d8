package emails

import (
	"context"

	"github.com/google/uuid"
)

// taggedIDsSQL searches by tag from the cursor down: along email_logs_tag1 to email_logs_tag5, one for each position of
// a tag (email.MaxTags), and among due emails without a log. A row with reached = true means that unreceivedSQL reached
// its limit, so that the result may be incomplete. It locks nothing.
const taggedIDsSQL = `
WITH unreceived AS MATERIALIZED (` + unreceivedSQL + `)
(SELECT id, false AS reached FROM (
    (SELECT outbox_id AS id FROM email_logs WHERE company_id = $1 AND tags[1] = $6 AND outbox_id < $2 AND outbox_id >= $3 ORDER BY outbox_id DESC LIMIT $4)
    UNION
    (SELECT outbox_id FROM email_logs WHERE company_id = $1 AND tags[2] = $6 AND outbox_id < $2 AND outbox_id >= $3 ORDER BY outbox_id DESC LIMIT $4)
    UNION
    (SELECT outbox_id FROM email_logs WHERE company_id = $1 AND tags[3] = $6 AND outbox_id < $2 AND outbox_id >= $3 ORDER BY outbox_id DESC LIMIT $4)
    UNION
    (SELECT outbox_id FROM email_logs WHERE company_id = $1 AND tags[4] = $6 AND outbox_id < $2 AND outbox_id >= $3 ORDER BY outbox_id DESC LIMIT $4)
    UNION
    (SELECT outbox_id FROM email_logs WHERE company_id = $1 AND tags[5] = $6 AND outbox_id < $2 AND outbox_id >= $3 ORDER BY outbox_id DESC LIMIT $4)
    UNION
    (SELECT id FROM unreceived WHERE id < $2 AND id >= $3 AND coalesce(payload -> 'tags' ? $6, false) ORDER BY id DESC LIMIT $4)
) found ORDER BY id DESC LIMIT $4)
UNION ALL
(SELECT id, true FROM unreceived OFFSET $5 - 1 LIMIT 1)`

// taggedIDs searches by tag. It finds a rare tag in one request, however many newer emails there are. While a longer
// backlog of the company waits for the dispatcher, the search runs in steps.
func (s *Store) taggedIDs(ctx context.Context, company, before uuid.UUID, f Filter, scan, limit int) (ids []uuid.UUID, next uuid.UUID, err error) {
	ids, crowded, err := s.selectStep(ctx, taggedIDsSQL, company, before, f.From, scan, waitingScan, f.Tag)
	switch {
	case err != nil:
		return nil, uuid.Nil, err
	case crowded != uuid.Nil:
		return s.stepIDs(ctx, company, before, f, limit)
	case len(ids) == scan:
		next = ids[scan-1]
	}
	return ids, next, nil
}
