package lane

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"email-gateway/shared/store/audit"
	"email-gateway/shared/store/internal/pg"
)

// Lane is a queue of outbox rows of one company, or of one of its mailings, for one task queue.
type Lane struct {
	ID          int64      `db:"id" json:"id"`
	CompanyID   uuid.UUID  `db:"company_id" json:"companyId"`
	Company     string     `db:"company" json:"company"`
	Queue       string     `db:"queue" json:"queue"`
	MailingID   *uuid.UUID `db:"mailing_id" json:"mailingId,omitempty"`
	PausedAt    *time.Time `db:"paused_at" json:"pausedAt,omitempty"` // by the mailing's own controls
	ParkedUntil *time.Time `db:"parked_until" json:"parkedUntil,omitempty"`
	HeldAt      *time.Time `db:"held_at" json:"heldAt,omitempty"` // by an operator
	HeldReason  *string    `db:"held_reason" json:"heldReason,omitempty"`
}

// Filter chooses lanes.
type Filter struct {
	Company uuid.NullUUID // invalid = of all companies
	Mailing uuid.NullUUID // invalid = lanes with and without a mailing
	Queue   string        // "" = all
	// NotOpen selects only lanes that are paused, parked or held, and not those of mailings that have ended: a cancelled
	// mailing's lane stays paused for ever.
	NotOpen bool
}

// listLanesSQL reads a company's lanes by dispatch_lanes_company_id_queue_mailing_id_key. Without a company it reads
// the whole table: a few rows per company and one per mailing. The mailings of lanes that are not open are read by primary
// key.
const listLanesSQL = `
SELECT l.id, l.company_id, c.name AS company, l.queue, l.mailing_id, l.paused_at,
       CASE WHEN l.parked_until > now() THEN l.parked_until END AS parked_until, l.held_at, l.held_reason
FROM dispatch_lanes l
JOIN companies c ON c.id = l.company_id
WHERE ($1::uuid IS NULL OR l.company_id = $1) AND ($2::uuid IS NULL OR l.mailing_id = $2) AND ($3 = '' OR l.queue = $3)
  AND (NOT $4 OR (l.paused_at IS NOT NULL OR l.held_at IS NOT NULL OR coalesce(l.parked_until > now(), false))
                 AND NOT EXISTS (SELECT FROM mailings m WHERE m.id = l.mailing_id AND m.status IN ('COMPLETED', 'CANCELLED')))
ORDER BY l.held_at IS NULL, c.name, l.mailing_id NULLS FIRST, l.id
LIMIT $5`

// Lanes lists at most limit lanes: those that an operator has paused first, and of one company those without a mailing
// first.
func (s *Store) Lanes(ctx context.Context, f Filter, limit int) ([]Lane, error) {
	var found []Lane
	if err := s.db.SelectContext(ctx, &found, listLanesSQL, f.Company, f.Mailing, f.Queue, f.NotOpen, limit); err != nil {
		return nil, fmt.Errorf("list lanes: %w", pg.Translate(err))
	}
	return found, nil
}

// selectedSQL selects the lanes of one company, found as in listLanesSQL.
const selectedSQL = `company_id = $1 AND ($2::uuid IS NULL OR mailing_id = $2) AND ($3 = '' OR queue = $3)`

// holdLanesSQL and releaseLanesSQL set and clear an operator's hold. Both lock lanes of the selection, as heldLanesSQL
// does before them; frequent statements only read these rows. A lane that is held for another reason is left as it is,
// or, with $5, gets the new reason and keeps the time. A lane that is already in the requested state is not updated.
const (
	holdLanesSQL = `
UPDATE dispatch_lanes SET held_at = coalesce(held_at, now()), held_reason = $4
WHERE ` + selectedSQL + ` AND (held_at IS NULL OR $5 AND held_reason IS DISTINCT FROM $4)`
	releaseLanesSQL = `
UPDATE dispatch_lanes SET held_at = NULL, held_reason = NULL
WHERE ` + selectedSQL + ` AND held_at IS NOT NULL AND ($4 = '' OR held_reason = $4)`
	heldLanesSQL = `
SELECT min(held_at) AS since, reason, count(*) AS lanes FROM (
    SELECT held_at, coalesce(held_reason, '') AS reason FROM dispatch_lanes WHERE ` + selectedSQL + ` ORDER BY id FOR NO KEY UPDATE) l
WHERE held_at IS NOT NULL GROUP BY reason ORDER BY since, reason`
)

// Hold is a pause by operators: of lanes, or of all sending (see breaker.Store.HoldBreaker).
type Hold struct {
	Since  time.Time `db:"since" json:"since"` // of lanes, the first one
	Reason string    `db:"reason" json:"reason"`
	Lanes  int       `db:"lanes" json:"lanes,omitempty"` // how many have the reason; 0 = all sending is held
}

// HeldError reports that a change needs a decision about these holds. Nothing was changed.
type HeldError struct{ Holds []Hold }

func (e *HeldError) Error() string {
	return fmt.Sprintf("held since %s: %s", e.Holds[0].Since.UTC().Format(time.RFC3339), e.Holds[0].Reason)
}

// Changed is the result of HoldLanes and ReleaseLanes.
type Changed struct {
	Lanes int // how many were changed
	// Before are the holds for other reasons, which HoldLanes has left or replaced, or those that ReleaseLanes has ended.
	Before []Hold
}

// HoldLanes pauses the lanes of one company until ReleaseLanes, with the operator's reason. Emails that a worker has claimed
// already are still sent. Lanes that are held for another reason are left as they are; if there are no others, the error is
// *HeldError. With replace, they get the new reason.
func (s *Store) HoldLanes(ctx context.Context, by audit.Operator, company uuid.UUID, f Filter, replace bool) (Changed, error) {
	return s.changeLanes(ctx, by, "lane.pause", company, f, func(tx *sqlx.Tx, done *Changed) (err error) {
		done.Before = slices.DeleteFunc(done.Before, func(h Hold) bool { return h.Reason == by.Reason })
		done.Lanes, err = audit.Affected(tx.ExecContext(ctx, holdLanesSQL, company, f.Mailing, f.Queue, by.Reason, replace))
		if errors.Is(err, audit.ErrUnchanged) && len(done.Before) > 0 {
			return &HeldError{done.Before}
		}
		return err
	})
}

// ReleaseLanes ends the holds of HoldLanes that have the reason, "" = any. It returns *HeldError if that would end holds for
// different reasons, unless all is set, and if all holds are for other reasons.
func (s *Store) ReleaseLanes(ctx context.Context, by audit.Operator, company uuid.UUID, f Filter, reason string, all bool) (Changed, error) {
	done, err := s.changeLanes(ctx, by, "lane.resume", company, f, func(tx *sqlx.Tx, done *Changed) (err error) {
		found := slices.Clone(done.Before)
		done.Before = slices.DeleteFunc(done.Before, func(h Hold) bool { return reason != "" && h.Reason != reason })
		if len(done.Before) > 1 && !all || len(done.Before) == 0 && len(found) > 0 {
			return &HeldError{found}
		}
		done.Lanes, err = audit.Affected(tx.ExecContext(ctx, releaseLanesSQL, company, f.Mailing, f.Queue, reason))
		return err
	})
	if done.Lanes > 0 && err == nil {
		_ = s.WakeLanes(ctx, []Lanes{{Company: company}}) // if it fails, the next full listing finds the lanes
	}
	return done, err
}

func (s *Store) changeLanes(
	ctx context.Context, by audit.Operator, action string, company uuid.UUID, f Filter, change func(tx *sqlx.Tx, done *Changed) error,
) (done Changed, err error) {
	_, err = audit.Apply(ctx, s.db, by, audit.Change{Action: action, Company: company}, func(tx *sqlx.Tx, a *audit.Change) error {
		done = Changed{}
		if err := tx.SelectContext(ctx, &done.Before, heldLanesSQL, company, f.Mailing, f.Queue); err != nil {
			return pg.Translate(err)
		}
		err := change(tx, &done)
		a.Details = map[string]any{"lanes": done.Lanes}
		if f.Queue != "" {
			a.Details["queue"] = f.Queue
		}
		if f.Mailing.Valid {
			a.Subject = f.Mailing.UUID.String()
		}
		return err
	})
	return done, pg.Wrap(action, err)
}

// ErrNone: the company has no lane for the email's queue, so no dispatcher would enqueue the email. Lanes are created
// with the company.
var ErrNone = errors.New("company has no dispatch lane")
