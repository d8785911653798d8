package webhook

import (
	"context"
	"fmt"
	"time"
)

const (
	// recentlySuccessfulSQL reads every endpoint and locks nothing. A worker that connects to no endpoint runs it once a minute.
	// It takes one endpoint of each company, because those of one company may all be on one host.
	recentlySuccessfulSQL = `
SELECT url FROM (
    SELECT DISTINCT ON (company_id) url, last_success_at FROM webhook_endpoints
    WHERE status = 'ENABLED' AND last_success_at IS NOT NULL ORDER BY company_id, last_success_at DESC
) newest ORDER BY last_success_at DESC LIMIT $1`

	// resetFailingSinceSQL locks one row by primary key. It changes nothing if a failure was recorded within $3 ms.
	resetFailingSinceSQL = `
UPDATE webhook_endpoints SET failing_since = now()
WHERE id = $1 AND lease_token = $2 AND failing_since IS NOT NULL AND coalesce(last_failure_at < now() - $3 * interval '1 ms', true)`
)

// RecentlySuccessful returns the URLs of the enabled endpoints that have accepted events most recently, one of each company.
func (s *SenderStore) RecentlySuccessful(ctx context.Context, limit int) ([]string, error) {
	var urls []string
	if err := s.db.Select(ctx, &urls, recentlySuccessfulSQL, limit); err != nil {
		return nil, fmt.Errorf("list webhook endpoints that have accepted events: %w", err)
	}
	return urls, nil
}

// ResetFailingSince lets a failing endpoint count as failing from now on, because the process with the lease cannot connect
// to any endpoint. It does nothing if a failure was recorded within the given time, in which only other processes record some.
func (s *SenderStore) ResetFailingSince(ctx context.Context, l Lease, unreachable time.Duration) error {
	if _, err := s.db.Exec(ctx, resetFailingSinceSQL, l.EndpointID, l.Token, unreachable.Milliseconds()); err != nil {
		return fmt.Errorf("reset failing_since of webhook endpoint: %w", err)
	}
	return nil
}
