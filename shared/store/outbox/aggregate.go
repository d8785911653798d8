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

// Aggregate is what an email is about, in its sender's words, and which of the emails
// about it this is. A company has at most one email that is not cancelled per aggregate and
// event type.
type Aggregate struct {
	Type      string // "interview"
	ID        string // the interview's
	EventType string // "REMINDER_24H"
}

// AggregateTakenError reports that an email of this aggregate and event type existed
// already.
type AggregateTakenError struct {
	ID uuid.UUID
}

func (e *AggregateTakenError) Error() string {
	return "an email of this aggregate and event type exists"
}

// ErrAggregateBusy: another transaction is about to write, move or cancel an email of this
// aggregate and event type, and did not come to its end in time.
var ErrAggregateBusy = errors.New("another transaction is changing an email of this aggregate and event type")

// LockWait is how long somebody waits who wants to write, move or cancel an email that
// another transaction is changing: for a commit, but not for a program that sits on it.
const LockWait = pg.LockWait

// The key of an email about something: see email_gateway_take_key in the migrations. It
// reads and inserts by outbox_aggregates_pkey, and waits for another transaction that
// has inserted the same key, for as long as pg.BoundWaitSQL says.
const takeKeySQL = `SELECT email_gateway_take_key($1, $2, $3, $4, $5)`

// insertAbout writes an email, takes its aggregate's key if it has an aggregate, and attaches its files, in one
// transaction. inserted is false when its idempotency key was used, or there is no
// lane; a used aggregate key is an *AggregateTakenError. nearQuota: the email may exceed a
// quota, a *quota.Error. The key comes first, because a program's transaction may hold it: a
// request that waits for it must not hold the quotas.
func (s *Store) insertAbout(ctx context.Context, e NewEmail, nearQuota bool) (inserted bool, err error) {
	row := pg.HeldRow{Company: e.CompanyID, Name: "files"}
	switch about := e.about(); {
	case e.Aggregate != nil:
		row.Name = "aggregate\x00" + about.Type + "\x00" + about.ID + "\x00" + about.EventType
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
		return false, fmt.Errorf("insert email: %w", idempotency.Held(err))
	case err != nil && e.Aggregate == nil:
		return false, fmt.Errorf("insert email: %w", pg.Held(err))
	case err != nil:
		return false, fmt.Errorf("insert email: %w", Held(err))
	}
	return true, nil
}

// errNotInserted rolls back what was taken for an email that then was not inserted.
var errNotInserted = errors.New("not inserted")

func tryInsertAbout(ctx context.Context, tx *sqlx.Tx, e NewEmail, nearQuota bool, wait time.Duration) error {
	if e.Aggregate != nil {
		var holder uuid.UUID
		about := e.about()
		if err := tx.GetContext(ctx, &holder, takeKeySQL, e.CompanyID, about.Type, about.ID, about.EventType, e.ID); err != nil {
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

// answeredBefore resolves an email whose aggregate is taken: it returns the answer to the email's own
// first request if that request took the aggregate, else taken. The insert may have conflicted with itself.
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

// aggregateEmailsSQL reads by outbox_aggregates_pkey, of each event type the last turn,
// and email_outbox and email_logs by primary key. It locks nothing.
const aggregateEmailsSQL = `
SELECT newest.outbox_id, newest.event_type, coalesce(o.status, l.status, '') AS status
FROM (SELECT DISTINCT ON (event_type) outbox_id, event_type FROM outbox_aggregates
      WHERE company_id = $1 AND aggregate_type = $2 AND aggregate_id = $3
      ORDER BY event_type, turn DESC) newest
LEFT JOIN email_outbox o ON o.id = newest.outbox_id AND o.company_id = $1
LEFT JOIN email_logs l ON l.outbox_id = newest.outbox_id AND l.company_id = $1
ORDER BY newest.event_type`

// AggregateEmails lists the company's emails about one thing, one per event type; those
// that were cancelled and have a successor are left out.
func (s *Store) AggregateEmails(ctx context.Context, company uuid.UUID, aggregateType, aggregateID string) ([]AggregateEmail, error) {
	found := []AggregateEmail{}
	if err := s.db.SelectContext(ctx, &found, aggregateEmailsSQL, company, aggregateType, aggregateID); err != nil {
		return nil, fmt.Errorf("list emails of aggregate: %w", pg.Translate(err))
	}
	return found, nil
}
