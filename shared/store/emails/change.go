package emails

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/outbox"
)

// Shown is an email with its timeline, both as of one commit.
type Shown struct {
	Email    Email
	Timeline []TimelineEvent
}

// ShowIn reads an email of the company in the transaction that changes it. The response to the change then needs no
// read after the commit, whose failure would hide the change. pg.ErrNotFound: neither the email's row nor its log is
// stored.
func ShowIn(ctx context.Context, tx *sqlx.Tx, company, id uuid.UUID) (shown Shown, err error) {
	if shown.Email, err = findEmail(ctx, tx, company, id); err != nil {
		return Shown{}, err
	}
	shown.Timeline, err = readTimeline(ctx, tx, id)
	return shown, err
}

// Changed is the result of a change of one email, with the email and its timeline after it.
type Changed struct {
	outbox.Advanced
	Shown
}

// ChangeEmail is outbox.Store.AdvanceAll for one email of the company. It returns the email as the commit leaves it,
// even if the transition was not applied. pg.ErrNotFound: there is no such email.
func (s *Store) ChangeEmail(ctx context.Context, company uuid.UUID, t outbox.Transition) (Changed, error) {
	changed, err := s.change(ctx, company, t.ID, func(tx *sqlx.Tx, wait time.Duration) (outbox.Advanced, error) {
		all, err := outbox.AdvanceAllIn(ctx, tx, []outbox.Transition{t}, wait)
		if err != nil {
			return outbox.Advanced{}, err
		}
		return all[0], nil
	})
	return changed, pg.Wrap("change email", err)
}

// Reschedule moves the company's email to another time, see outbox.MoveIn, and returns the email as the commit leaves
// it. outbox.ErrAggregateBusy, pg.ErrBusy: a program's open transaction holds the email.
func (s *Store) Reschedule(ctx context.Context, m outbox.Move) (Changed, error) {
	changed, err := s.change(ctx, m.CompanyID, m.ID, func(tx *sqlx.Tx, _ time.Duration) (outbox.Advanced, error) {
		return outbox.MoveIn(ctx, tx, m)
	})
	return changed, pg.Wrap("reschedule email", err)
}

// change changes one email in a pg.InBoundedTx and reads the email before the commit.
func (s *Store) change(ctx context.Context, company, id uuid.UUID, do func(tx *sqlx.Tx, wait time.Duration) (outbox.Advanced, error)) (Changed, error) {
	changed, err := pg.InBoundedTx(ctx, s.db, pg.HeldRow{Company: company, Name: id.String()}, func(tx *sqlx.Tx, wait time.Duration) ([]Changed, error) {
		moved, err := do(tx, wait)
		if err != nil {
			return nil, err
		}
		shown, err := ShowIn(ctx, tx, company, id)
		return []Changed{{moved, shown}}, err
	})
	if err != nil {
		return Changed{}, outbox.AsAggregateBusy(err)
	}
	return changed[0], nil
}
