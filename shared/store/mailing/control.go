package mailing

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/quota"
)

// StateError reports that a mailing's status, or the state of its entries,
// does not allow the operation. Nothing was changed.
type StateError struct {
	Status Status
	Reason string // human-readable
}

func (e *StateError) Error() string {
	return fmt.Sprintf("mailing is %s: %s", e.Status, e.Reason)
}

// PausedError reports that the reputation guard has paused the company's mailings, so that none can
// be started. Nothing was changed.
type PausedError struct{ Since time.Time }

func (e *PausedError) Error() string {
	return "the reputation guard has paused the company's mailings since " + e.Since.UTC().Format(time.RFC3339)
}

// lockForControlSQL locks the row that findMailingSQL finds until the end of the transaction.
// The lock serializes the controls of one mailing with each other and with the steps of its
// job, which checks status and generation under the same lock.
const lockForControlSQL = findMailingSQL + ` FOR UPDATE`

// These statements update the row that lockForControlSQL has locked. A job checks status and generation.
// last_attempt is the job's heartbeat; it is NULL while no job holds the mailing.
const (
	pauseMailingSQL = `
UPDATE mailings SET status = 'PAUSED', last_attempt = NULL, counted_at = NULL, updated_at = now()
WHERE id = $1 RETURNING ` + mailingColumns

	requeueMailingSQL = `
UPDATE mailings SET status = 'QUEUED', generation = generation + 1, attempts = 0, last_attempt = NULL, error_message = NULL, updated_at = now()
WHERE id = $1 RETURNING ` + mailingColumns

	continueMailingSQL = `
UPDATE mailings SET status = 'SENDING', attempts = 0, last_attempt = NULL, error_message = NULL, counted_at = NULL, updated_at = now()
WHERE id = $1 RETURNING ` + mailingColumns

	cancelMailingSQL = `
UPDATE mailings SET status = 'CANCELLED', settling = 'cancel', settled_to = NULL, last_attempt = NULL, counted_at = NULL, updated_at = now()
WHERE id = $1 RETURNING ` + mailingColumns

	retryFailedSQL = `
UPDATE mailings SET status = 'SENDING', settling = 'retry-failed', settled_to = NULL, counted_at = NULL, completed_at = NULL, updated_at = now()
WHERE id = $1 RETURNING ` + mailingColumns
)

// sendableSQL returns whether the content of any email of the mailing is left, as eraseTemplatesSQL tests it. It reads a range of
// email_outbox_pkey backward to the last such email, because the oldest contents are erased first, and locks nothing.
const sendableSQL = `
SELECT EXISTS (SELECT FROM (
    SELECT FROM mailings m
    JOIN email_outbox o ON o.id >= m.first_entry AND o.id <= m.last_entry AND (o.company_id = m.company_id) IS TRUE AND o.body_erased_at IS NULL
    JOIN dispatch_lanes l ON l.id = o.lane_id AND l.company_id = m.company_id AND l.mailing_id = m.id
    WHERE m.id = $1 AND m.company_id = $2 AND (m.html <> '' OR m.text_body IS NOT NULL)
    ORDER BY o.id DESC LIMIT 1) last)`

// Both statements find the mailing's lane by the unique index of dispatch_lanes and lock it.
// The fence and the dispatcher read paused_at, so no email of the mailing starts after
// closeLaneSQL is committed.
const (
	closeLaneSQL = `
UPDATE dispatch_lanes SET paused_at = coalesce(paused_at, now()) WHERE company_id = $1 AND queue = $2 AND mailing_id = $3`

	openLaneSQL = `
UPDATE dispatch_lanes SET paused_at = NULL WHERE company_id = $1 AND queue = $2 AND mailing_id = $3`
)

// StartMailing starts a mailing that was uploaded as held and was never started. It returns
// *StateError for any other mailing, *quota.Error if the quota of running mailings is used up,
// and *PausedError if the company's mailings are paused.
func (s *Store) StartMailing(ctx context.Context, company, id uuid.UUID) (Mailing, error) {
	return s.control(ctx, "start mailing", company, id, func(tx *sqlx.Tx, m *Mailing) error {
		if m.Status != Paused || m.Generation != 0 {
			return &StateError{Status: m.Status, Reason: "only a mailing that was created with start=false and has not been started can be started"}
		}
		return resume(ctx, tx, m)
	}, runs)
}

// PauseMailing stops further emails of the mailing from starting; provider calls in flight are completed.
// It returns *StateError if the mailing is not running.
func (s *Store) PauseMailing(ctx context.Context, company, id uuid.UUID) (Mailing, error) {
	return s.control(ctx, "pause mailing", company, id, func(tx *sqlx.Tx, m *Mailing) error {
		switch m.Status {
		case Queued, Pending, Processing, Sending:
			return changeMailing(ctx, tx, m, pauseMailingSQL, closeLaneSQL)
		default:
			return &StateError{Status: m.Status, Reason: "only a QUEUED, PENDING, PROCESSING or SENDING mailing can be paused"}
		}
	})
}

// ResumeMailing continues a paused or failed mailing where it stopped. It returns *StateError if the
// mailing is neither paused nor failed, *quota.Error if the quota of running mailings is used up,
// *PausedError if the company's mailings are paused, and pg.ErrExists if another mailing now has the
// filename, which a failed mailing releases.
func (s *Store) ResumeMailing(ctx context.Context, company, id uuid.UUID) (Mailing, error) {
	return s.control(ctx, "resume mailing", company, id, func(tx *sqlx.Tx, m *Mailing) error {
		if m.Status != Paused && m.Status != Failed {
			return &StateError{Status: m.Status, Reason: "only a PAUSED or FAILED mailing can be resumed"}
		}
		failed := m.Status == Failed
		if err := resume(ctx, tx, m); err != nil || !failed {
			return err
		}
		return resolveMailingLetters(ctx, tx, m.ID, lettersRetried, nil, nil)
	}, runs)
}

// CancelMailing cancels a mailing: no further email starts, and the EntryActionLoop cancels the
// waiting entries. The dead letter of a failed mailing is discarded. It returns *StateError if the
// mailing is already completed or cancelled.
func (s *Store) CancelMailing(ctx context.Context, company, id uuid.UUID) (Mailing, error) {
	return s.control(ctx, "cancel mailing", company, id, cancel(ctx))
}

func cancel(ctx context.Context) func(tx *sqlx.Tx, m *Mailing) error {
	return func(tx *sqlx.Tx, m *Mailing) error {
		if m.Status == Completed || m.Status == Cancelled {
			return &StateError{Status: m.Status, Reason: "a COMPLETED or CANCELLED mailing cannot be cancelled"}
		}
		if err := changeMailing(ctx, tx, m, cancelMailingSQL, closeLaneSQL); err != nil {
			return err
		}
		return resolveMailingLetters(ctx, tx, m.ID, lettersDiscarded, nil, nil)
	}
}

// RetryFailedEntries makes the EntryActionLoop replay the failed and expired entries, except those
// that the provider may have accepted. It returns *StateError if the mailing is a dry run, is neither
// SENDING nor COMPLETED, has no failed or expired entry, or has no email that can be sent again;
// *quota.Error if the quota of running mailings is used up; and *PausedError if the company's mailings
// are paused.
func (s *Store) RetryFailedEntries(ctx context.Context, company, id uuid.UUID) (Mailing, error) {
	var sendable bool // read without a lock: a replay of what is erased meanwhile finds that it is
	if err := s.db.GetContext(ctx, &sendable, sendableSQL, id, company); err != nil {
		return Mailing{}, fmt.Errorf("look for emails to send again: %w", pg.Translate(err))
	}
	return s.control(ctx, "retry failed entries", company, id, func(tx *sqlx.Tx, m *Mailing) error {
		switch {
		case m.DryRun:
			return &StateError{Status: m.Status, Reason: "a dry run sends nothing, so there is nothing to retry"}
		case m.Status != Sending && m.Status != Completed:
			return &StateError{Status: m.Status, Reason: "only the entries of a SENDING or COMPLETED mailing can be retried"}
		case m.Failed+m.Expired == 0:
			return &StateError{Status: m.Status, Reason: "no entry has failed or expired"}
		case !sendable:
			return &StateError{Status: m.Status, Reason: "its emails were deleted at the end of their retention period and cannot be sent again"}
		}
		if m.Status != Sending {
			if err := checkRunning(ctx, tx, m.CompanyID); err != nil {
				return err
			}
		}
		return changeMailing(ctx, tx, m, retryFailedSQL, "")
	}, runs)
}

// runs marks a control that may start the mailing.
const runs = true

// control is controlIn in a transaction of its own. The error is pg.ErrBusy if another transaction does not release a lock
// in time.
func (s *Store) control(ctx context.Context, operation string, company, id uuid.UUID, change func(tx *sqlx.Tx, m *Mailing) error, starts ...bool) (Mailing, error) {
	changed, err := pg.InBoundedTx(ctx, s.db, pg.HeldRow{Company: company, Name: id.String()}, func(tx *sqlx.Tx, _ time.Duration) ([]Mailing, error) {
		controlled, err := controlIn(ctx, tx, company, id, change, starts...)
		return []Mailing{controlled}, err
	})
	var refused *StateError
	var paused *PausedError
	switch {
	case errors.As(err, &refused):
		return Mailing{}, refused
	case errors.As(err, &paused):
		return Mailing{}, paused
	case err != nil:
		return Mailing{}, fmt.Errorf("%s: %w", operation, pg.AsBusy(err))
	}
	return changed[0], nil
}

// controlIn locks one mailing and changes it. change updates the row and m. A control that may start the mailing locks the
// company's quotas first, and is refused while the company's mailings are paused.
func controlIn(ctx context.Context, tx *sqlx.Tx, company, id uuid.UUID, change func(tx *sqlx.Tx, m *Mailing) error, starts ...bool) (Mailing, error) {
	var m Mailing
	if len(starts) > 0 {
		if err := quota.Lock(ctx, tx, company); err != nil {
			return m, err
		}
	}
	if err := tx.GetContext(ctx, &m, lockForControlSQL, id, company); err != nil {
		return m, pg.Translate(err)
	}
	if m.EntriesDeletedAt != nil {
		return m, &StateError{Status: m.Status, Reason: "its entries were deleted at the end of their retention period"}
	}
	if len(starts) > 0 && m.CompanyPausedAt != nil {
		return m, &PausedError{Since: *m.CompanyPausedAt}
	}
	return m, change(tx, &m)
}

// resume opens the mailing's lane and, unless all entries are expanded already, writes a job
// with a new generation, so that older jobs have no effect.
func resume(ctx context.Context, tx *sqlx.Tx, m *Mailing) error {
	if err := checkRunning(ctx, tx, m.CompanyID); err != nil {
		return err
	}
	if m.ExpandedAt != nil {
		return changeMailing(ctx, tx, m, continueMailingSQL, openLaneSQL)
	}
	if err := changeMailing(ctx, tx, m, requeueMailingSQL, openLaneSQL); err != nil {
		return err
	}
	job := outbox.MailingJob{MailingID: m.ID, CompanyID: m.CompanyID, RequestID: m.RequestID, StorageURL: m.StorageURL, Generation: m.Generation}
	if m.SendAt != nil {
		job.SendAt = *m.SendAt
	}
	return outbox.InsertMailingJob(ctx, tx, job)
}

// changeMailing runs mailingSQL and, unless it is "", laneSQL. It updates the mailing first: the
// lock on the mailing's row serializes concurrent changes.
func changeMailing(ctx context.Context, tx *sqlx.Tx, m *Mailing, mailingSQL, laneSQL string) error {
	var changed Mailing
	if err := tx.GetContext(ctx, &changed, mailingSQL, m.ID); err != nil {
		return pg.Translate(err)
	}
	*m = changed
	if laneSQL == "" {
		return nil
	}
	if _, err := tx.ExecContext(ctx, laneSQL, m.CompanyID, mailingQueue, m.ID); err != nil {
		return pg.Translate(err)
	}
	return nil
}
