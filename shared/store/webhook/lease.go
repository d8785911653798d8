package webhook

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/store/internal/pg"
)

// Work identifies an endpoint that may have deliveries, replays or new events.
type Work struct {
	EndpointID uuid.UUID `db:"id"`
	CompanyID  uuid.UUID `db:"company_id"`
}

const (
	// activeSQL leaves out the endpoints of suspended companies, which receive nothing, as these companies may not read
	// either. It finds the company by primary key.
	activeSQL = `NOT EXISTS (SELECT FROM companies c WHERE c.id = e.company_id AND c.suspended_at IS NOT NULL)`

	// freeSQL is true when no process has the lease of the endpoint.
	freeSQL = `coalesce(lease_until NOT BETWEEN now() AND ` + pg.FarthestLeaseSQL + `, true)`

	// probeDueSQL is true when the last failure was at least $3 ms ago. One that is as far ahead counts too: see
	// pg.FarthestLeaseSQL.
	probeDueSQL = `last_failure_at NOT BETWEEN now() - $3 * interval '1 ms' AND now() + $3 * interval '1 ms'`

	// newProbeDueSQL is the same for the last failed attempt of a new event, which the newest delivery with an attempt
	// records. The retries of open deliveries do not count: they may be those that the endpoint alone refuses, and so many
	// that no new event would be attempted. It reads webhook_deliveries_list.
	newProbeDueSQL = `coalesce((SELECT d.created_at NOT BETWEEN now() - $3 * interval '1 ms' AND now() + $3 * interval '1 ms' FROM webhook_deliveries d
    WHERE d.endpoint_id = e.id AND d.company_id = e.company_id AND d.position > 0 AND d.attempts > 0 ORDER BY d.id DESC LIMIT 1), true)`

	// dueEndpointsSQL reads the index webhook_endpoints_due, which contains the endpoints with open deliveries and
	// replays, and locks nothing. An endpoint that is down is also due for a probe before due_at.
	dueEndpointsSQL = `
SELECT id, company_id FROM webhook_endpoints e
WHERE status = 'ENABLED' AND due_at IS NOT NULL
  AND (due_at <= now() OR failures >= $2 AND ` + probeDueSQL + `)
  AND ` + freeSQL + ` AND (not_before IS NULL OR not_before <= now())
  AND ` + activeSQL + `
ORDER BY due_at LIMIT $1`

	// behindSQL reads every endpoint, and for each the company's newest event by event_feed_position. The LIMIT
	// prevents Postgres from reading the events of all companies instead. It leaves out endpoints whose cursor has
	// stopped. It locks nothing.
	behindSQL = `
SELECT e.id, e.company_id FROM webhook_endpoints e
CROSS JOIN LATERAL (SELECT f.position FROM event_feed f
    WHERE f.company_id = e.company_id AND f.position >= e.feed_position ORDER BY f.position DESC LIMIT 1) newest
WHERE e.status = 'ENABLED' AND e.open_deliveries < $4
  AND (e.failures < $2 OR ` + newProbeDueSQL + `)
  AND ` + freeSQL + ` AND (e.not_before IS NULL OR e.not_before <= now())
  AND ` + activeSQL + `
  AND (newest.position > e.feed_position OR e.feed_number < 4611686018427387904)
LIMIT $1`

	// headSQL reads the only row of event_positions and locks nothing.
	headSQL = `SELECT newest FROM event_positions`
)

// Head returns the position of the newest event of all companies. While it does not change, no endpoint has a new
// event.
func (s *SenderStore) Head(ctx context.Context) (int64, error) {
	var head int64
	if err := s.db.Get(ctx, &head, headSQL); err != nil {
		return 0, fmt.Errorf("read the newest event: %w", err)
	}
	return head, nil
}

// Due lists endpoints with deliveries or replays that are due. probeAfter is the time from the last failure of an
// endpoint that is down, or for new events from the last failed attempt of one, to its next probe.
func (s *SenderStore) Due(ctx context.Context, probeAfter time.Duration, limit int) ([]Work, error) {
	var all []Work
	if err := s.db.Select(ctx, &all, dueEndpointsSQL, limit, DownFailures, probeAfter.Milliseconds()); err != nil {
		return nil, fmt.Errorf("list due webhook endpoints: %w", err)
	}
	return all, nil
}

// Behind lists endpoints with events after their cursor.
func (s *SenderStore) Behind(ctx context.Context, probeAfter time.Duration, limit int) ([]Work, error) {
	var all []Work
	if err := s.db.Select(ctx, &all, behindSQL, limit, DownFailures, probeAfter.Milliseconds(), MaxOpen); err != nil {
		return nil, fmt.Errorf("list webhook endpoints with events: %w", err)
	}
	return all, nil
}

// LeaseTime is the maximum duration of a lease.
const LeaseTime = pg.LeaseTime

// Lease is the right to serve an endpoint, for one process at a time.
type Lease struct {
	EndpointID uuid.UUID
	Token      uuid.UUID
}

const (
	// leaseSQL locks one row by primary key. It skips a row that another transaction has locked.
	leaseSQL = `
UPDATE webhook_endpoints SET lease_token = $2, lease_until = now() + $3 * interval '1 ms'
WHERE id = (SELECT id FROM webhook_endpoints
    WHERE id = $1 AND status = 'ENABLED' AND (` + freeSQL + ` OR lease_token = $2) FOR UPDATE SKIP LOCKED)
RETURNING id`

	// renewSQL and releaseSQL lock one row by primary key.
	renewSQL = `
UPDATE webhook_endpoints SET lease_until = now() + $3 * interval '1 ms'
WHERE id = $1 AND lease_token = $2 AND lease_until > now() RETURNING id`

	releaseSQL = `UPDATE webhook_endpoints SET lease_token = NULL, lease_until = NULL WHERE id = $1 AND lease_token = $2`
)

// Take takes the lease of an endpoint. ErrLeaseLost: another process has the lease or has locked the endpoint, or the
// endpoint is disabled.
func (s *SenderStore) Take(ctx context.Context, l Lease, d time.Duration) error {
	return s.lease(ctx, "lease webhook endpoint", leaseSQL, l, d)
}

// Renew extends a lease that has not expired.
func (s *SenderStore) Renew(ctx context.Context, l Lease, d time.Duration) error {
	return s.lease(ctx, "renew lease of webhook endpoint", renewSQL, l, d)
}

func (s *SenderStore) lease(ctx context.Context, what, statement string, l Lease, d time.Duration) error {
	var id uuid.UUID
	err := s.db.Get(ctx, &id, statement, l.EndpointID, l.Token, d.Milliseconds())
	if errors.Is(err, errNotFound) {
		return ErrLeaseLost
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// Release releases a lease. It returns no error for a lease that is lost already.
func (s *SenderStore) Release(ctx context.Context, l Lease) error {
	if _, err := s.db.Exec(ctx, releaseSQL, l.EndpointID, l.Token); err != nil {
		return fmt.Errorf("release lease of webhook endpoint: %w", err)
	}
	return nil
}
