package webhook

import (
	"context"
	"fmt"
	"time"
)

const (
	// provenSQL reads every endpoint and locks nothing. A worker that connects to no endpoint runs it once a minute.
	// It takes one endpoint of each company, because those of one company may all be on one host.
	provenSQL = `
SELECT url FROM (
    SELECT DISTINCT ON (company_id) url, last_success_at FROM webhook_endpoints
    WHERE status = 'ENABLED' AND last_success_at IS NOT NULL ORDER BY company_id, last_success_at DESC
) newest ORDER BY last_success_at DESC LIMIT $1`

	// excuseSQL locks one row by primary key. A failure that another process has recorded within $3 ms counts.
	excuseSQL = `
UPDATE webhook_endpoints SET failing_since = now()
WHERE id = $1 AND lease_token = $2 AND failing_since IS NOT NULL AND coalesce(last_failure_at < now() - $3 * interval '1 ms', true)`
)

// Proven returns the URLs of the enabled endpoints that have accepted events most recently, one of each company.
func (s *SenderStore) Proven(ctx context.Context, limit int) ([]string, error) {
	var urls []string
	if err := s.db.Select(ctx, &urls, provenSQL, limit); err != nil {
		return nil, fmt.Errorf("list webhook endpoints that have accepted events: %w", err)
	}
	return urls, nil
}

// Excuse says that the process with the lease failed to reach the endpoint through its own fault, for the given time: an
// endpoint that was failing before counts as failing from now on only, unless another process has found it failing meanwhile.
func (s *SenderStore) Excuse(ctx context.Context, l Lease, since time.Duration) error {
	if _, err := s.db.Exec(ctx, excuseSQL, l.EndpointID, l.Token, since.Milliseconds()); err != nil {
		return fmt.Errorf("excuse failures of webhook endpoint: %w", err)
	}
	return nil
}
