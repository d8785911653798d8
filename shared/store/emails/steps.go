package emails

import (
	"context"

	"github.com/google/uuid"
)

// ListScan is how many emails one request of a list may read. No index contains the status, because it would cost every
// send more than it saves. So the search for a rare status runs in steps of this size, each some 20 ms.
const ListScan = 5000

// stepIDsSQL scans the indexes of listIDsSQL over $5 emails. It returns the newest $6 of them that have the tag and the
// status, and the email where the scan stopped (reached), unless the scan came to the end. The status is in the outbox
// row, or in the log if that row is purged. The tags are in the log, or, for a PENDING or ENQUEUED email, which may
// have no log, in the row. It locks nothing.
const stepIDsSQL = `
WITH walked AS MATERIALIZED (
    SELECT id, bool_or(tagged) AS tagged, coalesce(max(outbox_status), max(log_status)) AS status FROM (
        (SELECT outbox_id AS id, $4 = '' OR $4 = ANY (tags) AS tagged, NULL AS outbox_status, status AS log_status FROM email_logs
         WHERE company_id = $1 AND outbox_id < $2 AND outbox_id >= $3 ORDER BY outbox_id DESC LIMIT $5)
        UNION ALL
        (SELECT id, $4 = '' OR CASE WHEN status IN ('PENDING', 'ENQUEUED') THEN coalesce(payload -> 'tags' ? $4, false) ELSE false END, status, NULL
         FROM email_outbox
         WHERE company_id = $1 AND id < $2 AND id >= $3 AND target = 'email:send' ORDER BY id DESC LIMIT $5)
    ) both_tables GROUP BY id ORDER BY id DESC LIMIT $5
)
(SELECT id, false AS reached FROM walked WHERE tagged AND ($7 = '' OR status = $7) ORDER BY id DESC LIMIT $6)
UNION ALL
(SELECT id, true FROM walked ORDER BY id DESC OFFSET $5 - 1)`

// stepIDs runs one step of a search by status alone, or by tag in a long backlog.
func (s *Store) stepIDs(ctx context.Context, company, before uuid.UUID, f Filter, limit int) (ids []uuid.UUID, next uuid.UUID, err error) {
	ids, next, err = s.selectStep(ctx, stepIDsSQL, company, before, f.From, f.Tag, max(ListScan, limit), limit, string(f.Status))
	if err != nil {
		return nil, uuid.Nil, err
	}
	if len(ids) == limit { // more may match before the end of the step
		next = ids[limit-1]
	}
	return ids, next, nil
}

// selectStep returns the emails that a statement found and, if its scan reached its limit, the email where it stopped.
func (s *Store) selectStep(ctx context.Context, statement string, parameters ...any) (ids []uuid.UUID, reached uuid.UUID, err error) {
	var found []struct {
		ID      uuid.UUID `db:"id"`
		Reached bool      `db:"reached"`
	}
	if err := s.db.SelectContext(ctx, &found, statement, parameters...); err != nil {
		return nil, uuid.Nil, err
	}
	for _, row := range found {
		if row.Reached {
			reached = row.ID
		} else {
			ids = append(ids, row.ID)
		}
	}
	return ids, reached, nil
}
