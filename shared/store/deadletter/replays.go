package deadletter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"email-gateway/shared/store/audit"
	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/internal/pgtext"
	"email-gateway/shared/store/quota"
)

// ReplayAction is the action of a replay on its dead letters.
type ReplayAction string

const (
	// ReplayRetry sends their emails, mailings or recipient imports again.
	ReplayRetry ReplayAction = "retry"
	// ReplayDiscard resolves them without sending anything.
	ReplayDiscard ReplayAction = "discard"
)

// ReplayStatus is whether a replay is still running.
type ReplayStatus string

const (
	ReplayRunning   ReplayStatus = "RUNNING"
	ReplayCompleted ReplayStatus = "COMPLETED"
)

// MaxReplayRate is the maximum rate of a replay, in dead letters per second.
const MaxReplayRate = 1000

// NewReplay describes a replay: an action on all open dead letters that match a filter.
type NewReplay struct {
	ID        uuid.UUID  // UUIDv7
	CompanyID *uuid.UUID // nil = all companies, for operators
	Action    ReplayAction
	Filter    LetterFilter
	Actor     audit.Actor
	RequestID string
	Note      string // the reason
	Most      int    // 0 = all matching dead letters
	Rate      int    // dead letters per second, 1 to MaxReplayRate
}

// Replay is a stored replay with its progress.
type Replay struct {
	ID          uuid.UUID    `db:"id"`
	CompanyID   *uuid.UUID   `db:"company_id"`
	Action      ReplayAction `db:"action"`
	RequestedBy string       `db:"requested_by"` // an Actor's text
	RequestID   string       `db:"request_id"`
	Note        *string      `db:"note"`
	Most        *int         `db:"most"`
	Rate        int          `db:"rate"`
	Status      ReplayStatus `db:"status"`
	Matched     int          `db:"matched"` // when it was created, at least: a count does not read all dead letters
	ReplayCounts
	CreatedAt  time.Time    `db:"created_at"`
	FinishedAt *time.Time   `db:"finished_at"`
	Filter     LetterFilter `db:"-"`

	FilterJSON json.RawMessage `db:"filter"`
}

// ReplayCounts counts dead letters by result.
type ReplayCounts struct {
	Done    int `db:"done"`
	Skipped int `db:"skipped"` // cannot be sent again, or a quota of the company is used up
	Failed  int `db:"failed"`  // a database error that is not temporary
}

// Retry returns the LetterRetry of the replay. The caller adds TTL and Advance.
func (r *Replay) Retry() LetterRetry {
	return LetterRetry{Actor: audit.ParseActor(r.RequestedBy), RequestID: r.RequestID, ReplayID: r.ID}
}

const replayColumns = `
id, company_id, action, filter, requested_by, request_id, note, most, rate, status, matched, done, skipped, failed, created_at, finished_at`

// MaxRunningReplays is the maximum number of running replays per company. It does not apply to operators.
const MaxRunningReplays = 10

// ErrTooManyReplays: the company already has MaxRunningReplays running replays.
var ErrTooManyReplays = errors.New("the company has the maximum number of running replays")

// runningReplaysSQL reads dead_letter_replays_open, which holds the running replays of all companies, and locks nothing.
const runningReplaysSQL = `SELECT count(*) FROM dead_letter_replays WHERE status = 'RUNNING' AND company_id = $1 AND id <> $2`

// insertReplaySQL may be run twice.
const insertReplaySQL = `
INSERT INTO dead_letter_replays (id, company_id, action, filter, requested_by, request_id, note, most, rate, matched)
VALUES ($1, $2, $3, $4, $5, $6, nullif($7, ''), nullif($8::integer, 0), $9, $10)
ON CONFLICT (id) DO NOTHING`

// CreateReplay stores a replay, which the dispatcher processes. The replay ignores dead letters that are written later, so that
// it does not retry its own failures forever. ErrTooManyReplays: nothing was written.
func (s *Store) CreateReplay(ctx context.Context, n NewReplay) (Replay, error) {
	if n.CompanyID != nil { // before the dead letters are counted, which takes longer
		if err := mayReplay(ctx, s.db, *n.CompanyID, n.ID); err != nil {
			return Replay{}, fmt.Errorf("create replay: %w", err)
		}
	}
	row, err := s.replayRow(ctx, n, 1)
	if err != nil {
		return Replay{}, err
	}
	var made Replay
	if n.CompanyID == nil {
		err = s.db.InTx(ctx, func(tx *sqlx.Tx) (err error) {
			made, err = insertReplay(ctx, tx, n.ID, row)
			return err
		})
	} else {
		made, err = s.insertWithinLimit(ctx, *n.CompanyID, n.ID, row)
	}
	if err != nil {
		return Replay{}, fmt.Errorf("create replay: %w", err)
	}
	return made, nil
}

// insertWithinLimit inserts a replay of the company and locks the company's quotas, so that concurrent requests count each
// other's replays.
func (s *Store) insertWithinLimit(ctx context.Context, company, id uuid.UUID, row []any) (Replay, error) {
	made, err := pg.InBoundedTx(ctx, s.db, pg.HeldRow{Company: company, Name: "replays"}, func(tx *sqlx.Tx, _ time.Duration) ([]Replay, error) {
		if err := quota.Lock(ctx, tx, company); err != nil {
			return nil, err
		}
		if err := mayReplay(ctx, tx, company, id); err != nil {
			return nil, err
		}
		made, err := insertReplay(ctx, tx, id, row)
		return []Replay{made}, err
	})
	if err != nil {
		return Replay{}, pg.AsBusy(err)
	}
	return made[0], nil
}

// insertReplay inserts a replay and reads it in the same transaction: a read after the commit could fail and hide that the
// replay was created.
func insertReplay(ctx context.Context, tx *sqlx.Tx, id uuid.UUID, row []any) (Replay, error) {
	if _, err := tx.ExecContext(ctx, insertReplaySQL, row...); err != nil {
		return Replay{}, pg.Translate(err)
	}
	return findReplay(ctx, tx, findAnyReplaySQL, id)
}

// mayReplay returns ErrTooManyReplays if one more replay would exceed MaxRunningReplays.
func mayReplay(ctx context.Context, db sqlx.QueryerContext, company, id uuid.UUID) error {
	var running int
	if err := sqlx.GetContext(ctx, db, &running, runningReplaysSQL, company, id); err != nil {
		return fmt.Errorf("count running replays: %w", pg.Translate(err))
	}
	if running >= MaxRunningReplays {
		return ErrTooManyReplays
	}
	return nil
}

// replayRow returns the parameters of insertReplaySQL. The last is the current number of
// matching dead letters, as far as that many scans find them: in the incident for which replays are made, a company may
// have millions of others.
func (s *Store) replayRow(ctx context.Context, n NewReplay, scans int) ([]any, error) {
	matched, err := s.countLetters(ctx, n.CompanyID, n.Filter, scans)
	if err != nil {
		return nil, err
	}
	if n.Most > 0 {
		matched = min(matched, n.Most)
	}
	filter, err := json.Marshal(n.Filter)
	if err != nil {
		return nil, fmt.Errorf("encode filter: %w", err)
	}
	return []any{
		n.ID, n.CompanyID, n.Action, string(pgtext.WithoutEscapedNUL(filter)), n.Actor.String(), n.RequestID,
		pgtext.WithoutNUL(n.Note), n.Most, n.Rate, matched,
	}, nil
}

// Both find by primary key and lock nothing.
const (
	findAnyReplaySQL = `SELECT ` + replayColumns + ` FROM dead_letter_replays WHERE id = $1`
	findReplaySQL    = findAnyReplaySQL + ` AND company_id = $2`
)

// FindReplay returns a replay of the company, or pg.ErrNotFound.
func (s *Store) FindReplay(ctx context.Context, company, id uuid.UUID) (Replay, error) {
	return findReplay(ctx, s.db, findReplaySQL, id, company)
}

// FindAnyReplay is FindReplay for operators.
func (s *Store) FindAnyReplay(ctx context.Context, id uuid.UUID) (Replay, error) {
	return findReplay(ctx, s.db, findAnyReplaySQL, id)
}

func findReplay(ctx context.Context, db sqlx.QueryerContext, statement string, args ...any) (Replay, error) {
	var r Replay
	if err := sqlx.GetContext(ctx, db, &r, statement, args...); err != nil {
		return Replay{}, fmt.Errorf("find replay: %w", pg.Translate(err))
	}
	if err := json.Unmarshal(r.FilterJSON, &r.Filter); err != nil {
		return Replay{}, fmt.Errorf("read filter of replay %s: %w", r.ID, err)
	}
	return r, nil
}

// cleanReplaysSQL reads the oldest replays along the primary key, since UUIDv7 ids sort by creation time, and locks the rows it
// deletes.
const cleanReplaysSQL = `
DELETE FROM dead_letter_replays WHERE id IN (
    SELECT id FROM dead_letter_replays ORDER BY id LIMIT $2 FOR UPDATE SKIP LOCKED)
AND finished_at < now() - $1 * interval '1 ms'`

// CleanReplays reads the limit oldest replays, deletes those that ended longer than age ago, and returns their number.
func (s *Store) CleanReplays(ctx context.Context, age time.Duration, limit int) (int, error) {
	result, err := s.db.Exec(ctx, cleanReplaysSQL, age.Milliseconds(), limit)
	if err != nil {
		return 0, fmt.Errorf("clean replays: %w", err)
	}
	n, err := result.RowsAffected()
	if err != nil {
		return 0, fmt.Errorf("clean replays: %w", err)
	}
	return int(n), nil
}
