package bench

import (
	"context"
	"fmt"
	"time"

	"email-gateway/scripts/bench/environment"
	"email-gateway/shared/service"
)

const (
	pollBatch = 100
	pollPause = time.Second
)

// duePage selects the next emails in order, by the same index as the dispatcher.
const duePage = `
SELECT id FROM email_outbox
WHERE status = 'PENDING' AND lane_id = $1 AND next_at <= now()
ORDER BY next_at, id LIMIT $2`

// poll measures the rate of a typical outbox poller: it reads a page of rows, publishes each,
// updates each, and sleeps. It counts whole iterations.
func (d *dispatching) poll(ctx context.Context) (float64, error) {
	if err := d.prepare(ctx); err != nil {
		return 0, err
	}
	start, moved := time.Now(), 0
	for range environment.Scale(d.environment, 4, 2) {
		ids, err := d.page(ctx)
		if err != nil {
			return 0, err
		}
		for _, id := range ids {
			if err := d.publish(ctx, id); err != nil {
				return 0, err
			}
			if _, err := d.system.Database.ExecContext(ctx, "UPDATE email_outbox SET status = 'ENQUEUED', enqueued_at = now() WHERE id = $1", id); err != nil {
				return 0, fmt.Errorf("update a row: %w", err)
			}
			moved++
		}
		if err := service.Pause(ctx, pollPause); err != nil {
			return 0, err
		}
	}
	return float64(moved) / time.Since(start).Seconds(), nil
}

func (d *dispatching) page(ctx context.Context) (ids []string, err error) {
	rows, err := d.system.Database.QueryContext(ctx, duePage, d.lane, pollBatch)
	if err != nil {
		return nil, fmt.Errorf("read a page: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return nil, fmt.Errorf("read a page: %w", err)
		}
		ids = append(ids, id)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read a page: %w", err)
	}
	return ids, nil
}
