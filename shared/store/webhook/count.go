package webhook

import (
	"context"
	"fmt"
)

// Counts are numbers of endpoints and open deliveries of all companies.
type Counts struct {
	Enabled  int `db:"enabled"`
	Down     int `db:"down"` // enabled endpoints that are down
	Disabled int `db:"disabled"`
	Open     int `db:"open"` // open deliveries
}

// countSQL reads every endpoint: some thousands at most. It locks nothing.
const countSQL = `
SELECT count(*) FILTER (WHERE status = 'ENABLED') AS enabled, count(*) FILTER (WHERE status = 'ENABLED' AND failures >= $1) AS down,
    count(*) FILTER (WHERE status = 'DISABLED') AS disabled, coalesce(sum(open_deliveries), 0) AS open
FROM webhook_endpoints`

// Count counts the endpoints.
func (s *SenderStore) Count(ctx context.Context) (Counts, error) {
	var c Counts
	if err := s.db.Get(ctx, &c, countSQL, DownFailures); err != nil {
		return Counts{}, fmt.Errorf("count webhook endpoints: %w", err)
	}
	return c, nil
}
