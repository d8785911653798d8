package recipient

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"email-gateway/shared/store/idempotency"
	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/lane"
	"email-gateway/shared/store/quota"
	"email-gateway/shared/store/sql"
)

// IntakeIDSQL is the recipient id of an import's outbox row o; NULL for a payload in an unknown form.
const IntakeIDSQL = `CASE WHEN o.payload ->> 'id' ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' THEN (o.payload ->> 'id')::uuid END`

// NewRecipients are the recipients of one request, to be accepted together or not
// at all.
type NewRecipients struct {
	CompanyID   uuid.UUID
	RequestID   string
	CreatedAt   time.Time
	Recipients  []NewRecipient   // at least one
	Idempotency *idempotency.Key // nil = none
	Traceparent string           // the trace of the request; "" = none
}

// NewRecipient is a person to import. If a request contains the same person
// twice, the later entry wins.
type NewRecipient struct {
	OutboxID uuid.UUID // UUIDv7, ascending in the order of the request
	Recipient
	CPFCNPJ []byte // encrypted; nil = none
}

// AcceptRecipients commits the recipients and returns nil: after that, none of them can be lost,
// and an email may name them before RabbitMQ has delivered them.
//
// The errors are those of outbox.Accepter.Accept: *idempotency.UsedError, *quota.Error, lane.ErrNone,
// idempotency.ErrInProgress, pg.ErrBusy, pg.ErrUnavailable (nothing was written), and pg.ErrUnknownOutcome (call
// outbox.Store.Exists with the first OutboxID).
func (s *Store) AcceptRecipients(ctx context.Context, r NewRecipients) error {
	rows, err := intakeRows(r)
	if err != nil {
		return err
	}
	near, err := s.quotas.Near(ctx, r.CompanyID, quota.Demand{quota.Recipients: int64(len(r.Recipients))})
	if err != nil {
		return err
	}
	// If a key expires between the insert and the look-up, the insert is repeated.
	for range 3 {
		insert := s.insertIntakes
		if near {
			insert = s.insertIntakesWithinQuota
		}
		inserted, err := insert(ctx, r, rows)
		if err != nil || inserted {
			return err
		}
		// The conflict may be with the same insert, which is repeated if its result was lost.
		exists, err := s.exists(ctx, r.Recipients[0].OutboxID)
		switch {
		case err != nil:
			return errors.Join(pg.ErrUnknownOutcome, err)
		case exists:
			return nil
		}
		if r.Idempotency == nil {
			return lane.ErrNone
		}
		used, err := s.keys.FindUsed(ctx, r.CompanyID, *r.Idempotency)
		switch {
		case err == nil:
			return &idempotency.UsedError{Answer: used}
		case !errors.Is(err, pg.ErrNotFound):
			return err
		}
	}
	return lane.ErrNone
}

func (s *Store) insertIntakes(ctx context.Context, r NewRecipients, rows []intakeRow) (inserted bool, err error) {
	row := pg.HeldRow{Company: r.CompanyID, Name: r.Recipients[0].OutboxID.String()} // no other request waits for this row
	if r.Idempotency != nil {
		row = r.Idempotency.Row(r.CompanyID)
	}
	written, err := pg.Bounded(ctx, s.db, row, func(wait time.Duration) ([]int64, error) {
		result, err := s.db.Exec(ctx, sql.AcceptRecipients, intakeParameters.Arguments(intakeScalars{r, wait}, rows)...)
		if err != nil {
			return nil, err
		}
		n, err := result.RowsAffected()
		return []int64{n}, err
	})
	if err != nil {
		if r.Idempotency != nil {
			err = idempotency.AsInProgress(err)
		}
		return false, fmt.Errorf("insert recipients: %w", pg.AsBusy(err))
	}
	return written[0] > 0, nil
}

// insertIntakesWithinQuota counts the recipients of the request that are new to the company, under
// the lock of its quotas, and inserts all of them if the quota permits.
func (s *Store) insertIntakesWithinQuota(ctx context.Context, r NewRecipients, rows []intakeRow) (bool, error) {
	inserted, err := quota.InTx(ctx, s.db, r.CompanyID, func(tx *sqlx.Tx, wait time.Duration) ([]bool, error) {
		ids := make([]uuid.UUID, len(r.Recipients))
		for i := range r.Recipients {
			ids[i] = r.Recipients[i].ID
		}
		known, err := FindKnown(ctx, tx, r.CompanyID, ids)
		if err != nil {
			return nil, err
		}
		wanted := quota.Demand{}
		for _, id := range ids {
			if !known[id] {
				known[id] = true // a request may contain a person twice
				wanted[quota.Recipients]++
			}
		}
		b, err := quota.OpenBudget(ctx, tx, r.CompanyID, wanted, false)
		if err != nil {
			return nil, err
		}
		if err := b.Take(wanted); err != nil {
			return nil, err
		}
		result, err := tx.ExecContext(ctx, sql.AcceptRecipients, intakeParameters.Arguments(intakeScalars{r, wait}, rows)...)
		if err != nil {
			return nil, pg.Translate(err)
		}
		n, err := result.RowsAffected()
		return []bool{n > 0}, err
	})
	if err != nil {
		return false, fmt.Errorf("insert recipients: %w", err)
	}
	return inserted[0], nil
}
