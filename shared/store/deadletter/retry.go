package deadletter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"email-gateway/shared/email"
	"email-gateway/shared/store/audit"
	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/mailing"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/recipient"
)

// LetterRetry has the parameters of a retry: its actor and how the email is sent again.
type LetterRetry struct {
	Actor     audit.Actor
	RequestID string
	ReplayID  uuid.UUID     // uuid.Nil = not part of a replay
	TTL       time.Duration // from now to the new deadline of an email
	// Advance moves an email; nil means a transaction of its own, which waits for a locked email up to outbox.LockWait. A caller
	// that retries many at a time passes outbox.Advancer.Advance, which does not wait.
	Advance func(ctx context.Context, t outbox.Transition) (outbox.Advanced, error)

	tx *sqlx.Tx // the surrounding transaction; nil = a new one
	// read is called in the transaction of the retry, before its commit; nil = nothing is read.
	read func(tx *sqlx.Tx) error
}

// NotReplayableError reports that nothing can be sent again for a dead letter, now or
// later. Nothing was changed.
type NotReplayableError struct {
	Reason string // text for users
}

func (e *NotReplayableError) Error() string { return "not replayable: " + e.Reason }

// RetryDeadLetter retries the subject of an open dead letter and resolves the dead letter in the same commit. The subject is an
// email, which gets a new budget of tries and a new deadline, a recipient import, or a failed mailing. The error is
// *NotReplayableError if the dead letter is not open, or if nothing is left to send; *mailing.PausedError if the company's
// mailings are paused; and *quota.Error if the quota of running mailings is used up.
func (s *Store) RetryDeadLetter(ctx context.Context, l Letter, r LetterRetry) error {
	err := s.retryDeadLetter(ctx, l, r)
	var refused *NotReplayableError
	if l.ResolvedAt != nil || !errors.As(err, &refused) {
		return err
	}
	// The caller has read it as open. If Postgres's answer was lost, the statement ran a second time and found the result of
	// its first run.
	now, findErr := s.FindAnyDeadLetter(ctx, l.ID)
	switch {
	case errors.Is(findErr, pg.ErrNotFound):
		return err
	case findErr != nil:
		return fmt.Errorf("retry dead letter: look it up: %w", findErr)
	case now.retriedBy(r):
		return nil
	}
	return err
}

// company returns uuid.Nil if the dead letter has no company.
func (l *Letter) company() uuid.UUID {
	if l.CompanyID == nil {
		return uuid.Nil
	}
	return *l.CompanyID
}

// retriedBy reports whether the dead letter was resolved by this retry, as far as its row identifies the retry.
func (l *Letter) retriedBy(r LetterRetry) bool {
	return l.Resolution != nil && *l.Resolution == Retried &&
		l.ResolvedBy != nil && *l.ResolvedBy == r.Actor.String() &&
		(l.ReplayID == nil) == (r.ReplayID == uuid.Nil) && (l.ReplayID == nil || *l.ReplayID == r.ReplayID)
}

func (s *Store) retryDeadLetter(ctx context.Context, l Letter, r LetterRetry) error {
	switch {
	case l.ResolvedAt != nil:
		return &NotReplayableError{Reason: "the dead letter is already resolved"}
	case l.Target == email.TargetSend && l.OutboxID != nil:
		return s.retryEmail(ctx, l, r)
	case l.Target == email.TargetRecipients && l.OutboxID != nil:
		return s.retryIntake(ctx, l, r)
	case l.Target == email.TargetMailing && l.MailingID != nil && l.CompanyID != nil:
		return s.retryMailing(ctx, l, r)
	}
	return &NotReplayableError{Reason: "the task refers to no email, recipient import or mailing: it can only be discarded"}
}

func (s *Store) retryEmail(ctx context.Context, l Letter, r LetterRetry) error {
	move := r.Advance
	switch {
	case r.tx != nil:
		move = func(ctx context.Context, t outbox.Transition) (outbox.Advanced, error) {
			return outbox.AdvanceIn(ctx, r.tx, t)
		}
	case move == nil:
		move = func(ctx context.Context, t outbox.Transition) (outbox.Advanced, error) {
			return s.advance(ctx, l, t, r.read)
		}
	}
	moved, err := move(ctx, outbox.Transition{
		ID: *l.OutboxID, Guard: outbox.GuardReplay, Status: email.Pending, Renew: r.TTL,
		Events: []email.Event{{Type: email.EventReplayed, At: time.Now().UTC(), Metadata: r.metadata(l)}},
	})
	switch {
	case err != nil:
		return fmt.Errorf("retry dead letter: %w", err)
	case moved.Locked:
		return fmt.Errorf("retry dead letter: %w", outbox.ErrAggregateBusy)
	case !moved.Applied && moved.Status == "":
		return &NotReplayableError{Reason: "the email does not exist or has been deleted"}
	case !moved.Applied && moved.Erased:
		return &NotReplayableError{Reason: "the content of the email has been deleted"}
	case !moved.Applied && moved.Replaced:
		return &NotReplayableError{Reason: "another email of the same aggregate and event type replaced it"}
	case !moved.Applied && moved.Status.Replayable():
		return &NotReplayableError{Reason: "the dead letter is already resolved, or the mailing of the email was cancelled"}
	case !moved.Applied:
		return &NotReplayableError{Reason: fmt.Sprintf("the email is %s", moved.Status)}
	}
	return nil
}

// advance moves an email of the company in a transaction of its own, and calls read before the commit.
func (s *Store) advance(ctx context.Context, l Letter, t outbox.Transition, read func(tx *sqlx.Tx) error) (outbox.Advanced, error) {
	all, err := pg.InBoundedTx(ctx, s.db, pg.HeldRow{Company: l.company(), Name: t.ID.String()}, func(tx *sqlx.Tx, wait time.Duration) ([]outbox.Advanced, error) {
		all, err := outbox.AdvanceAllIn(ctx, tx, []outbox.Transition{t}, wait)
		if err != nil || read == nil || !all[0].Applied {
			return all, err
		}
		return all, read(tx)
	})
	if err != nil {
		return outbox.Advanced{}, outbox.AsAggregateBusy(err)
	}
	return all[0], nil
}

// metadata is the event's metadata in the timeline. sql.Advance resolves the email's dead letters
// with these values.
func (r LetterRetry) metadata(l Letter) map[string]any {
	m := map[string]any{"by": r.Actor.By, "deadLetterId": l.ID}
	switch {
	case r.Actor.By == audit.ByAPI:
		m["keyId"] = r.Actor.Name
	case r.Actor.Name != "":
		m["operator"] = r.Actor.Name
	}
	if r.RequestID != "" {
		m["requestId"] = r.RequestID
	}
	if r.ReplayID != uuid.Nil {
		m["replayId"] = r.ReplayID
	}
	return m
}

// retryIntakeSQL finds the outbox row by primary key and locks it, writes the import, and
// resolves the row's dead letters (along dead_letters_open). A person who was deleted after
// the import was accepted is not restored.
const retryIntakeSQL = `
WITH held AS MATERIALIZED (
    SELECT o.*, ` + recipient.IntakeIDSQL + ` AS recipient_id
    FROM email_outbox o WHERE o.id = $1 AND o.target = 'recipients.upsert' FOR UPDATE
), back AS (
    UPDATE email_outbox o SET status = 'PENDING', processed_at = NULL, attempts = 0, next_at = now(), due_at = NULL
    FROM held h
    WHERE o.id = h.id AND h.status = 'FAILED'
      AND NOT EXISTS (SELECT FROM recipients r WHERE r.id = h.recipient_id AND (r.deletion_id > h.id OR r.deleted_at > h.created_at))
    RETURNING o.id, o.company_id, o.payload, h.recipient_id
), intake AS (
    INSERT INTO recipient_intakes (recipient_id, outbox_id, company_id, email)
    SELECT recipient_id, id, company_id, payload ->> 'email' FROM back WHERE recipient_id IS NOT NULL
    ON CONFLICT DO NOTHING
), resolved AS (
    UPDATE dead_letters d SET resolved_at = now(), updated_at = now(), resolution = 'retried', resolved_by = $2, replay_id = $3
    FROM back b WHERE d.outbox_id = b.id AND d.resolved_at IS NULL
)
SELECT h.status, b.id IS NOT NULL AS applied FROM held h LEFT JOIN back b ON b.id = h.id`

// retriedIntake is the result of retrying an import.
type retriedIntake struct {
	Status  string `db:"status"` // before
	Applied bool   `db:"applied"`
}

func (s *Store) retryIntake(ctx context.Context, l Letter, r LetterRetry) error {
	args := []any{*l.OutboxID, r.Actor.String(), pg.OptionalUUID(r.ReplayID)}
	var rows []retriedIntake
	var err error
	if r.tx != nil {
		err = pg.Translate(r.tx.SelectContext(ctx, &rows, retryIntakeSQL, args...))
	} else {
		rows, err = pg.InBoundedTx(ctx, s.db, pg.HeldRow{Company: l.company(), Name: l.OutboxID.String()}, func(tx *sqlx.Tx, _ time.Duration) (rows []retriedIntake, err error) {
			if err := tx.SelectContext(ctx, &rows, retryIntakeSQL, args...); err != nil {
				return nil, pg.Translate(err)
			}
			if r.read == nil || len(rows) == 0 || !rows[0].Applied {
				return rows, nil
			}
			return rows, r.read(tx)
		})
		err = pg.AsBusy(err)
	}
	switch {
	case err != nil:
		return fmt.Errorf("retry dead letter: %w", err)
	case len(rows) == 0:
		return &NotReplayableError{Reason: "the recipient import does not exist or has been deleted"}
	case rows[0].Applied:
		return nil
	case rows[0].Status == string(email.Failed):
		return &NotReplayableError{Reason: "the recipient was deleted after the import was accepted"}
	}
	return &NotReplayableError{Reason: "the recipient import is " + rows[0].Status}
}

func (s *Store) retryMailing(ctx context.Context, l Letter, r LetterRetry) error {
	var err error
	if r.tx != nil {
		err = mailing.RetryFailedMailingIn(ctx, r.tx, *l.CompanyID, *l.MailingID, r.Actor.String(), r.ReplayID)
	} else {
		err = s.mailings.RetryFailedMailing(ctx, *l.CompanyID, *l.MailingID, r.Actor.String(), r.ReplayID, r.read)
	}
	var refused *mailing.StateError
	switch {
	case errors.As(err, &refused):
		return &NotReplayableError{Reason: fmt.Sprintf("the mailing is %s", refused.Status)}
	case errors.Is(err, pg.ErrExists):
		return &NotReplayableError{Reason: "another mailing now uses the same filename"}
	case errors.Is(err, pg.ErrNotFound):
		return &NotReplayableError{Reason: "there is no such mailing"}
	}
	return err
}
