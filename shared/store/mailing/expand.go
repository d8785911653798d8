package mailing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"email-gateway/shared/email"
	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/internal/pgtext"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/quota"
	"email-gateway/shared/store/recipient"
	"email-gateway/shared/store/sql"
)

// ExpandedEntry is the result for an entry: an email, or INVALID.
type ExpandedEntry struct {
	ID            uuid.UUID
	InvalidReason string // "" = it becomes an email
	Details       string // why it is invalid
	RecipientID   uuid.UUID
	Job           email.SendJob // the dispatcher sets Attempt and EnqueuedAt

	payload []byte
}

// Expansion is one step of a job, committed as a whole.
type Expansion struct {
	Entries []ExpandedEntry // the results of the pending entries
	// To is the last entry that was read, Lines how many accepted lines were read. uuid.Nil and 0
	// leave the cursor unchanged.
	To    uuid.UUID
	Lines int
	// Finished: To is the mailing's last entry. The mailing becomes SENDING.
	Finished bool
	// Continue releases the mailing and leaves the rest to another job.
	Continue *Continuation
	// Waiting is the reported reason why that job waits; the zero value = none.
	Waiting Waiting
	// NearQuota: the emails may exceed the daily quota. Expand then checks the quota and returns
	// *quota.Error if they do.
	NearQuota bool
	// NoNewPeople: the quota of recipients is used up. An email to a new recipient is sent, and neither this
	// step nor its claim creates the recipient.
	NoNewPeople bool
}

// Continuation is the job that continues the expansion.
type Continuation struct {
	ID    uuid.UUID // of its outbox row, UUIDv7
	Delay time.Duration
}

// Expand commits one step: it turns entries into emails, moves the cursor and writes the
// heartbeat. held is false if the job no longer holds the mailing: then nothing is written.
// queued is how many entries became emails. A step with Finished or Continue releases the mailing.
//
// A locked recipient delays one step of the company by pg.GroupWait. For pg.LockedKeyTime after that, steps
// skip locked recipients, and the claim of each email writes its recipient. A recipient that
// another transaction is inserting still delays each step by pg.GroupWait. The error is recipient.ErrLocked if
// another transaction holds the mailing's row for outbox.LockWait, or with NearQuota for pg.GroupWait, or the
// company's quotas for quota.LockWait.
func (s *Store) Expand(ctx context.Context, job *Job, x Expansion) (queued int, held bool, err error) {
	for i := range x.Entries {
		encoded, err := json.Marshal(x.Entries[i].Job)
		if err != nil {
			return 0, false, fmt.Errorf("encode job: %w", err)
		}
		x.Entries[i].payload = pgtext.WithoutEscapedNUL(encoded)
	}
	steps, err := s.expandPastLocks(job.CompanyID, func(mode recipientMode, wait time.Duration) ([]expanded, error) {
		if x.NearQuota {
			// The transaction holds the lock of the quotas, for which requests of the company wait.
			wait = min(wait, pg.GroupWait)
		}
		args := expandParameters.Arguments(expandScalars{job, &x, mode, wait}, x.Entries)
		if x.NearQuota {
			return s.expandWithinQuota(ctx, job.CompanyID, int64(x.emails()), args)
		}
		var steps []expanded
		err := pg.Write(func(args []any) error {
			steps = nil
			return s.db.SelectContext(ctx, &steps, sql.Expand, args...)
		}, args...)
		return steps, err
	})
	switch {
	case pg.IsLockTimeout(err) && !errors.Is(err, recipient.ErrLocked):
		return 0, false, fmt.Errorf("expand mailing: %w: %w", recipient.ErrLocked, err)
	case err != nil:
		return 0, false, fmt.Errorf("expand mailing: %w", err)
	case len(steps) == 0:
		return 0, false, nil
	}
	if x.To != uuid.Nil {
		job.ExpandedTo = x.To
	}
	if steps[0].Heartbeat != nil {
		job.Heartbeat = *steps[0].Heartbeat
	}
	return steps[0].Queued, true, nil
}

// recipientMode selects which recipients a step writes.
type recipientMode string

const (
	allRecipients      recipientMode = "all"
	freeRecipients     recipientMode = "free"     // those that no other transaction has locked
	existingRecipients recipientMode = "existing" // free ones: no snapshot contains a recipient that another transaction is inserting
)

// expandPastLocks repeats a step that timed out waiting for a lock, and writes fewer recipients each time. It
// returns recipient.ErrLocked unchanged: that lock is not a recipient's.
func (s *Store) expandPastLocks(company uuid.UUID, step func(mode recipientMode, wait time.Duration) ([]expanded, error)) ([]expanded, error) {
	mode, wait := allRecipients, pg.GroupWait
	if s.expanding.Contains(company) {
		mode = freeRecipients
	}
	for {
		steps, err := pg.Repeat(func() ([]expanded, error) { return step(mode, wait) })
		if !pg.IsLockTimeout(err) || errors.Is(err, recipient.ErrLocked) || mode == existingRecipients {
			return steps, err
		}
		s.expanding.Add(company)
		if mode == allRecipients {
			mode = freeRecipients
		} else {
			mode, wait = existingRecipients, outbox.LockWait // only the mailing's own row can still be locked
		}
	}
}

// expandWithinQuota runs a step in a transaction that has locked the company's quotas,
// before it locks the mailing. If another transaction holds that lock for quota.LockWait, the error is
// recipient.ErrLocked. quota.InTx does not fit here: its error hides the lock timeout from expandPastLocks.
func (s *Store) expandWithinQuota(ctx context.Context, company uuid.UUID, emails int64, args []any) (steps []expanded, err error) {
	err = s.db.InTx(ctx, func(tx *sqlx.Tx) error {
		if _, err := tx.ExecContext(ctx, pg.BoundWaitSQL, pg.LockTimeout(quota.LockWait)); err != nil {
			return pg.Translate(err)
		}
		err := quota.TakeFrom(ctx, tx, company, quota.Demand{quota.EmailsPerDay: emails}, false)
		switch {
		case pg.IsLockTimeout(err):
			return fmt.Errorf("%w: %w", recipient.ErrLocked, err)
		case err != nil:
			return err
		}
		return pg.Translate(tx.SelectContext(ctx, &steps, sql.Expand, args...))
	})
	return steps, err
}

// emails returns how many of the entries become emails.
func (x *Expansion) emails() (n int) {
	for _, e := range x.Entries {
		if e.InvalidReason == "" {
			n++
		}
	}
	return n
}

// expanded is the result of a step. Heartbeat is nil if the step released the mailing.
type expanded struct {
	Heartbeat *time.Time `db:"last_attempt"`
	Queued    int        `db:"queued"`
}
