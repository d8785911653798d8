package webhook

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
)

// RoundSize is the maximum number of deliveries that a round attempts.
const RoundSize = 100

// Round is the work of an endpoint that is due now.
type Round struct {
	Endpoint
	// Due holds the deliveries to attempt, at most one per email.
	Due []Delivery
	// NewDue means that new events may be attempted: the endpoint is not down, or it is time to check whether it is up
	// again.
	NewDue bool
	// Probe holds at most one delivery, which is scheduled for later. If the endpoint is down and there is no new event,
	// it is attempted to check whether the endpoint is up again.
	Probe []Delivery
	// OpenEmails are the emails with open deliveries. Later events of these emails wait.
	OpenEmails []uuid.UUID
	// Replay is the oldest running replay; nil = none.
	Replay *Replay
}

const (
	// heldSQL finds by primary key and locks nothing.
	heldSQL = `SELECT ` + endpointColumns + ` FROM webhook_endpoints e WHERE id = $1 AND lease_token = $2 AND lease_until > now() AND ` + activeSQL

	// dueDeliveriesSQL reads along webhook_deliveries_retrying.
	dueDeliveriesSQL = `
SELECT ` + deliveryColumns + ` FROM webhook_deliveries
WHERE endpoint_id = $1 AND status = 'RETRYING' AND next_at <= now() ORDER BY next_at, id LIMIT $2`

	// probeSQL reads along webhook_deliveries_retrying without the condition on next_at, if the endpoint's last failure
	// is old enough.
	probeSQL = `
SELECT ` + deliveryColumns + ` FROM webhook_deliveries d
WHERE endpoint_id = $1 AND status = 'RETRYING'
  AND (SELECT last_failure_at NOT BETWEEN now() - $2 * interval '1 ms' AND now() + $2 * interval '1 ms' FROM webhook_endpoints e WHERE e.id = $1)
ORDER BY next_at, id LIMIT 1`

	// newDueSQL finds the endpoint by primary key.
	newDueSQL = `SELECT failures < $2 OR ` + newProbeDueSQL + ` FROM webhook_endpoints e WHERE id = $1`

	// openEmailsSQL reads webhook_deliveries_open, which has little more than MaxOpen rows per endpoint.
	openEmailsSQL = `
SELECT DISTINCT email_id FROM webhook_deliveries
WHERE endpoint_id = $1 AND status IN ('RETRYING', 'WAITING') AND email_id IS NOT NULL`

	// runningReplaySQL reads along webhook_replays_running.
	runningReplaySQL = `SELECT ` + replayColumns + ` FROM webhook_replays WHERE endpoint_id = $1 AND status = 'RUNNING' ORDER BY id LIMIT 1`
)

// Load reads the work of the endpoint of a lease. probeAfter is the time from the last failure of an endpoint that is
// down, or for new events from the last failed attempt of one, to its next probe. ErrLeaseLost: the lease has expired, or the
// company is suspended.
func (s *SenderStore) Load(ctx context.Context, l Lease, probeAfter time.Duration) (Round, error) {
	var r Round
	err := s.db.Get(ctx, &r.Endpoint, heldSQL, l.EndpointID, l.Token)
	if errors.Is(err, errNotFound) {
		return Round{}, ErrLeaseLost
	}
	if err == nil {
		err = s.db.Select(ctx, &r.Due, dueDeliveriesSQL, l.EndpointID, RoundSize)
	}
	if r.NewDue = !r.Down(); err == nil && len(r.Due) == 0 && r.Down() {
		if err = s.db.Get(ctx, &r.NewDue, newDueSQL, l.EndpointID, DownFailures, probeAfter.Milliseconds()); err == nil {
			err = s.db.Select(ctx, &r.Probe, probeSQL, l.EndpointID, probeAfter.Milliseconds())
		}
	}
	if err == nil && r.Open > 0 {
		err = s.db.Select(ctx, &r.OpenEmails, openEmailsSQL, l.EndpointID)
	}
	var replays []Replay
	if err == nil {
		err = s.db.Select(ctx, &replays, runningReplaySQL, l.EndpointID)
	}
	if err != nil {
		return Round{}, fmt.Errorf("load webhook endpoint: %w", err)
	}
	if len(replays) > 0 {
		r.Replay = &replays[0]
	}
	return r, nil
}
