package webhook

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
)

const (
	// deleteBatch is how many deliveries one commit deletes.
	deleteBatch = 1000
	// deleteTime bounds a call of Delete, since a client waits for it.
	deleteTime = 5 * time.Second
)

// ErrDeleting: the endpoint is disabled and has deliveries that are not deleted yet. Another call continues.
var ErrDeleting = errors.New("the webhook endpoint has more deliveries than one request deletes")

const (
	// It reads the next deliveries of the endpoint after $3 along webhook_deliveries_list and locks them.
	deleteDeliveriesSQL = `
WITH gone AS (
    DELETE FROM webhook_deliveries WHERE company_id = $2 AND id = ANY (ARRAY(
        SELECT id FROM webhook_deliveries WHERE endpoint_id = $1 AND company_id = $2 AND id > $3 ORDER BY id LIMIT $4))
    RETURNING id
)
SELECT id FROM gone ORDER BY id DESC OFFSET $4 - 1`

	// It locks one row by primary key, and the rows that refer to it.
	deleteSQL = `DELETE FROM webhook_endpoints WHERE id = $1 AND company_id = $2`
)

// Delete deletes the endpoint with its deliveries and replays. It disables the endpoint and deletes its deliveries in
// batches first, because one statement for all of them may take longer than a statement may. ErrDeleting: some are
// left.
func (s *Store) Delete(ctx context.Context, company, id uuid.UUID) error {
	if _, err := s.Disable(ctx, company, id); err != nil {
		return err
	}
	after := uuid.Nil
	for start := time.Now(); time.Since(start) < deleteTime; {
		var last []uuid.UUID // of a full batch
		if _, err := s.write(ctx, &last, deleteDeliveriesSQL, id, company, after, deleteBatch); err != nil {
			return fmt.Errorf("delete webhook deliveries: %w", err)
		}
		if len(last) == 0 {
			return s.one(ctx, "delete webhook endpoint", deleteSQL, id, company)
		}
		after = last[0]
	}
	return ErrDeleting
}
