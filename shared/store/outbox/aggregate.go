package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"email-gateway/shared/email"
	"email-gateway/shared/store/file"
	"email-gateway/shared/store/idempotency"
	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/quota"
)

// Aggregate identifies what an email is about and, by EventType, which email about it this is. The sender chooses the
// names. A company has at most one email per aggregate and event type, not counting cancelled ones.
type Aggregate struct {
	Type      string // such as "interview"
	ID        string // such as the interview's id
	EventType string // such as "REMINDER_24H"
}

// AggregateTakenError reports that an email of this aggregate and event type exists already. ID is the id of that
// email.
type AggregateTakenError struct {
	ID uuid.UUID
}

func (e *AggregateTakenError) Error() string {
	return "an email of this aggregate and event type exists"
}

// ErrAggregateBusy: another transaction is writing, moving or cancelling an email of this aggregate and event type, and
// the wait for it timed out.
var ErrAggregateBusy = errors.New("another transaction is changing an email of this aggregate and event type")

// ErrAggregateTooLarge: emails of more than MaxAggregateEmails event types exist about one thing.
var ErrAggregateTooLarge = errors.New("the aggregate has too many event types")

// MaxAggregateEmails is how many emails about one thing are listed, and so cancelled in one transaction: it uses one
// of the few tries of all companies for locks, and other requests wait for one for a few seconds.
const MaxAggregateEmails = 1000

// LockWait is the maximum wait for an email that another transaction is changing. It is longer than a commit takes; a
// program may keep its transaction open longer.
const LockWait = pg.LockWait

// takeKeySQL takes the key of an aggregate and event type: see email_gateway_take_key in the migrations. It reads and
// inserts by outbox_aggregates_pkey, and writes the row of a cancelled email that is replaced, by primary key. If another
// transaction has inserted the same key, is retrying that email, or holds the email of the key, it waits as long as
// pg.BoundWaitSQL permits.
const takeKeySQL = `SELECT email_gateway_take_key($1, $2, $3, $4, $5)`

// insertInOwnTx writes one email in its own transaction, takes the aggregate's key if the email has an aggregate, and
// attaches its files. inserted is false if the idempotency key was used or the company has no lane. If the aggregate's
// key is taken, the error is an *AggregateTakenError. nearQuota means that the email may exceed a quota: the error is
// then a *quota.Error. The key is taken first because a program's transaction may hold it: a request that waits for the
// key must not hold the quotas.
func (s *Store) insertInOwnTx(ctx context.Context, e NewEmail, nearQuota bool) (inserted bool, err error) {
	row := pg.HeldRow{Company: e.CompanyID, Name: "files"}
	switch aggregate := e.aggregate(); {
	case e.Aggregate != nil:
		row.Name = "aggregate\x00" + aggregate.Type + "\x00" + aggregate.ID + "\x00" + aggregate.EventType
	case e.Idempotency != nil:
		row = e.key().Row(e.CompanyID)
	}
	_, err = pg.InBoundedTx(ctx, s.db, row, func(tx *sqlx.Tx, wait time.Duration) ([]struct{}, error) {
		return nil, tryInsertAbout(ctx, tx, e, nearQuota, wait)
	})
	switch {
	case errors.Is(err, errNotInserted):
		return false, nil
	case err != nil && e.Aggregate == nil && e.Idempotency != nil:
		return false, fmt.Errorf("insert email: %w", idempotency.AsInProgress(err))
	case err != nil && e.Aggregate == nil:
		return false, fmt.Errorf("insert email: %w", pg.AsBusy(err))
	case err != nil:
		return false, fmt.Errorf("insert email: %w", AsAggregateBusy(err))
	}
	return true, nil
}

// errNotInserted rolls back what the transaction took for an email that it did not insert.
var errNotInserted = errors.New("not inserted")

func tryInsertAbout(ctx context.Context, tx *sqlx.Tx, e NewEmail, nearQuota bool, wait time.Duration) error {
	if e.Aggregate != nil {
		var holder uuid.UUID
		aggregate := e.aggregate()
		if err := tx.GetContext(ctx, &holder, takeKeySQL, e.CompanyID, aggregate.Type, aggregate.ID, aggregate.EventType, e.ID); err != nil {
			return pg.Translate(err)
		}
		if holder != e.ID {
			return &AggregateTakenError{ID: holder}
		}
	}
	files := Attached([]NewEmail{e})
	if err := file.Hold(ctx, tx, e.CompanyID, files...); err != nil {
		return err
	}
	if nearQuota {
		wanted, err := demandOf(ctx, tx, e.CompanyID, []NewEmail{e})
		if err != nil {
			return err
		}
		if err := quota.TakeFrom(ctx, tx, e.CompanyID, wanted[0], false); err != nil {
			return err
		}
	}
	var inserted []uuid.UUID
	if err := tx.SelectContext(ctx, &inserted, acceptStatement([]NewEmail{e}), acceptArguments([]NewEmail{e}, wait)...); err != nil {
		return pg.Translate(err)
	}
	if len(inserted) == 0 {
		return errNotInserted
	}
	return file.Link(ctx, tx, e.CompanyID, files...)
}

// answeredBefore resolves an email whose aggregate is taken. It returns nil if an earlier run of the email's own insert
// took it, the stored response if the email's idempotency key has one, and otherwise taken.
func (s *Store) answeredBefore(ctx context.Context, e NewEmail, taken *AggregateTakenError) error {
	if taken.ID == e.ID {
		return nil
	}
	if e.Idempotency == nil {
		return taken
	}
	used, err := s.keys.FindAnswer(ctx, e.CompanyID, e.Idempotency.Route, e.Idempotency.Key)
	switch {
	case errors.Is(err, pg.ErrNotFound):
		return taken
	case err != nil:
		return err
	}
	return &idempotency.UsedError{Answer: used}
}

// AggregateEmail is the newest email of an event type about one thing.
type AggregateEmail struct {
	ID        uuid.UUID    `db:"outbox_id"`
	EventType string       `db:"event_type"`
	Status    email.Status `db:"status"`
}

// aggregateEmailsSQL reads the last turn of each event type by outbox_aggregates_pkey, and email_outbox and email_logs
// by primary key. It locks nothing.
const aggregateEmailsSQL = `
SELECT newest.outbox_id, newest.event_type, coalesce(o.status, l.status, '') AS status
FROM (SELECT DISTINCT ON (event_type) outbox_id, event_type FROM outbox_aggregates
      WHERE company_id = $1 AND aggregate_type = $2 AND aggregate_id = $3
      ORDER BY event_type, turn DESC LIMIT $4) newest
LEFT JOIN email_outbox o ON o.id = newest.outbox_id AND o.company_id = $1
LEFT JOIN email_logs l ON l.outbox_id = newest.outbox_id AND l.company_id = $1
ORDER BY newest.event_type`

// AggregateEmails lists the company's newest email of each event type about one thing. If there are more than
// MaxAggregateEmails, the error is ErrAggregateTooLarge.
func (s *Store) AggregateEmails(ctx context.Context, company uuid.UUID, aggregateType, aggregateID string) ([]AggregateEmail, error) {
	found := []AggregateEmail{}
	if err := s.db.SelectContext(ctx, &found, aggregateEmailsSQL, company, aggregateType, aggregateID, MaxAggregateEmails+1); err != nil {
		return nil, fmt.Errorf("list emails of aggregate: %w", pg.Translate(err))
	}
	if len(found) > MaxAggregateEmails {
		return nil, ErrAggregateTooLarge
	}
	return found, nil
}
