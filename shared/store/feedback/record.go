package feedback

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jmoiron/sqlx"

	"email-gateway/shared/email"
	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/suppression"
)

// recorded is the result of a notification in a group.
type recorded struct {
	Result
	// locked: another transaction holds rows of the email; nothing was written.
	locked bool
}

// fresh reports whether the notification matches an email and is to be applied.
func (r *recorded) fresh() bool { return !r.locked && !r.Repeated && !r.Unmatched }

// recordGroup records notifications about different emails in one commit. It does not wait for locked emails, and waits for
// any other lock at most as long as wait.
func (s *Store) recordGroup(ctx context.Context, all []Feedback, wait time.Duration) (results []recorded, err error) {
	if err := pg.Ready(ctx, s.takeFreeFeedback, s.readFeedback, s.appendFeedback); err != nil {
		return nil, err
	}
	err = s.db.InTx(ctx, func(tx *sqlx.Tx) error {
		if _, err := tx.ExecContext(ctx, pg.BoundWaitSQL, pg.LockTimeout(wait)); err != nil {
			return pg.Translate(err)
		}
		results, err = s.record(ctx, tx, s.takeFreeFeedback, all, wait)
		return err
	})
	return results, err
}

// recordOne records one notification, and waits for locks as long as pg.Bounded permits. If too many notifications wait
// already, the error is ErrUnavailable, as after a lock timeout: the notification is delivered again.
func (s *Store) recordOne(ctx context.Context, f Feedback) (recorded, error) {
	if err := pg.Ready(ctx, s.takeFeedback, s.readFeedback, s.appendFeedback); err != nil {
		return recorded{}, err
	}
	row := pg.HeldRow{Company: f.CompanyID, Name: "feedback\x00" + f.OutboxID.String()}
	results, err := pg.InBoundedTx(ctx, s.db, row, func(tx *sqlx.Tx, wait time.Duration) ([]recorded, error) {
		return s.record(ctx, tx, s.takeFeedback, []Feedback{f}, wait)
	})
	if errors.Is(err, pg.ErrBusy) || errors.Is(err, pg.ErrTries) || errors.Is(err, pg.ErrTriesOfCompany) {
		err = pg.ErrUnavailable
	}
	if err != nil {
		return recorded{}, err
	}
	return results[0], nil
}

// record takes the notifications with a statement, applies those that match an email and are new, and returns the results in
// order.
func (s *Store) record(ctx context.Context, tx *sqlx.Tx, take *pg.Prepared, all []Feedback, wait time.Duration) ([]recorded, error) {
	results, err := takeAll(ctx, tx, take, all)
	if err != nil {
		return nil, err
	}
	subjects, err := s.readAll(ctx, tx, all, results)
	if err != nil {
		return nil, err
	}
	var (
		applied   []Feedback
		confirmed []outbox.Transition
		added     []addition
		addresses = make([][]string, len(all)) // to suppress
	)
	now := time.Now().UTC()
	for i, f := range all {
		if !results[i].fresh() {
			continue
		}
		r, found := &results[i].Result, subjects[f.OutboxID]
		applied = append(applied, f)
		addresses[i] = found.addressesToSuppress(f)
		events := found.newEvents(f, addresses[i], now)
		*r = Result{PreviousStatus: found.Status, RequestID: found.RequestID, MailingID: found.MailingID, Attempt: found.Attempt}
		r.Duplicate = slices.ContainsFunc(events, func(e email.Event) bool { return e.Type == email.EventDuplicateConfirmed })
		switch {
		case found.Status != email.Sent && found.InOutbox:
			confirmed = append(confirmed, confirmation(f, events))
		case len(events) > 0 || found.OutcomeUnknown:
			encoded, err := outbox.EncodeEvents(events)
			if err != nil {
				return nil, err
			}
			added = append(added, addition{f, encoded, r.Duplicate})
		}
	}
	// The transaction holds the locks, so the transitions always apply.
	if len(confirmed) > 0 {
		if _, err := outbox.AdvanceAllIn(ctx, tx, confirmed, wait); err != nil {
			return nil, fmt.Errorf("confirm emails: %w", err)
		}
	}
	if err := s.appendAll(ctx, tx, added); err != nil {
		return nil, err
	}
	for i, f := range all {
		if results[i].Suppressed, err = suppression.AddAll(ctx, tx, f.CompanyID, addresses[i], f.Suppress, f.Note); err != nil {
			return nil, err
		}
	}
	return results, markAll(ctx, tx, applied)
}
