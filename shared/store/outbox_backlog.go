package store

import (
	"context"
	"fmt"
)

// countPendingSQL counts along email_outbox_lane_claim, without touching the table
// where it need not, and stops at $1. It locks nothing.
const countPendingSQL = `
SELECT count(*) FROM (
    SELECT FROM email_outbox WHERE status = 'PENDING' AND target = 'email:send' LIMIT $1
) pending`

// CountPending is how many emails wait for the dispatcher, limit at most: beyond
// that the exact number costs more than it tells.
func (s *Store) CountPending(ctx context.Context, limit int) (int, error) {
	var n int
	if err := s.db.GetContext(ctx, &n, countPendingSQL, limit); err != nil {
		return 0, fmt.Errorf("count pending emails: %w", translate(err))
	}
	return n, nil
}
