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
	"email-gateway/shared/store/quota"
)

// ReplayAction is what a replay does to dead letters.
type ReplayAction string

const (
	// ReplayRetry sends again what they tell of.
	ReplayRetry ReplayAction = "retry"
	// ReplayDiscard resolves them and does nothing.
	ReplayDiscard ReplayAction = "discard"
)

// ReplayStatus is whether a replay is still running.
type ReplayStatus string

const (
	ReplayRunning   ReplayStatus = "RUNNING"
	ReplayCompleted ReplayStatus = "COMPLETED"
)

// MaxReplayRate is the most dead letters per second of one replay.
const MaxReplayRate = 1000

// NewReplay describes a replay: an action on all open dead letters that a filter
// matches, however many there are.
type NewReplay struct {
	ID        uuid.UUID  // UUIDv7
	CompanyID *uuid.UUID // nil = of all companies, for operators
	Action    ReplayAction
	Filter    LetterFilter
	Actor     audit.Actor
	RequestID string
	Note      string // why
	Most      int    // 0 = all that match
	Rate      int    // per second, 1 to MaxReplayRate
}

// Replay is such a request and how far it has come.
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
	Matched     int          `db:"matched"` // when it was asked for, up to a million
	ReplayCounts
	CreatedAt  time.Time    `db:"created_at"`
	FinishedAt *time.Time   `db:"finished_at"`
	Filter     LetterFilter `db:"-"`

	FilterJSON json.RawMessage `db:"filter"`
}

// ReplayCounts is what has become of dead letters.
type ReplayCounts struct {
	Done    int `db:"done"`
	Skipped int `db:"skipped"` // nothing is left that could be sent again
	Failed  int `db:"failed"`  // the database refused
}

// Retry is how the replay's dead letters are sent again. The caller adds TTL and Advance.
func (r *Replay) Retry() LetterRetry {
	return LetterRetry{Actor: audit.ParseActor(r.RequestedBy), RequestID: r.RequestID, ReplayID: r.ID}
}

const replayColumns = `
id, company_id, action, filter, requested_by, request_id, note, most, rate, status, matched, done, skipped, failed, created_at, finished_at`

// MaxRunningReplays is how many replays of one company run at the same time. Operators may start
// more.
const MaxRunningReplays = 10

// ErrTooManyReplays: MaxRunningReplays of the company run already.
var ErrTooManyReplays = errors.New("as many replays of the company run as may")

// runningReplaysSQL goes along dead_letter_replays_open, which holds the running replays of all
// companies, and locks nothing.
const runningReplaysSQL = `SELECT count(*) FROM dead_letter_replays WHERE status = 'RUNNING' AND company_id = $1 AND id <> $2`

// insertReplaySQL may be run twice.
const insertReplaySQL = `
INSERT INTO dead_letter_replays (id, company_id, action, filter, requested_by, request_id, note, most, rate, matched)
VALUES ($1, $2, $3, $4, $5, $6, nullif($7, ''), nullif($8::integer, 0), $9, $10)
ON CONFLICT (id) DO NOTHING`

// CreateReplay writes the request down; a loop works it off. Dead letters that are
// written later are none of its business, so that what fails again is not sent for ever.
// ErrTooManyReplays: nothing was written.
func (s *Store) CreateReplay(ctx context.Context, n NewReplay) (Replay, error) {
	if n.CompanyID != nil { // before the letters are counted, which takes longer
		if err := mayReplay(ctx, s.db, *n.CompanyID, n.ID); err != nil {
			return Replay{}, fmt.Errorf("create replay: %w", err)
		}
	}
	row, err := s.replayRow(ctx, n)
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

// insertWithinLimit inserts a replay of the company, whose quotas it locks: requests at the same time
// count each other's replays.
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
		return Replay{}, pg.Held(err)
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

// mayReplay refuses a replay beyond MaxRunningReplays.
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
// matching dead letters.
func (s *Store) replayRow(ctx context.Context, n NewReplay) ([]any, error) {
	matched, err := s.CountDeadLetters(ctx, n.CompanyID, n.Filter)
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
		n.ID, n.CompanyID, n.Action, string(pg.WithoutEscapedNUL(filter)), n.Actor.String(), n.RequestID,
		pg.WithoutNUL(n.Note), n.Most, n.Rate, matched,
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

// dueReplaysSQL goes along dead_letter_replays_open and locks nothing.
const dueReplaysSQL = `
SELECT id FROM dead_letter_replays WHERE status = 'RUNNING' AND next_at <= now()
ORDER BY row_number() OVER (PARTITION BY company_id ORDER BY next_at, id), id`

// DueReplays lists the replays that have dead letters to process now and whose rate permits
// it. Companies take turns: of each company, the replay that has been due for longest comes first.
func (s *Store) DueReplays(ctx context.Context) ([]uuid.UUID, error) {
	var ids []uuid.UUID
	if err := s.db.SelectContext(ctx, &ids, dueReplaysSQL); err != nil {
		return nil, fmt.Errorf("list replays: %w", pg.Translate(err))
	}
	return ids, nil
}

// A round locks the replay's row by primary key until its commit, so that two processes
// do not take the same dead letters; the second process skips the replay.
//
// A round of n dead letters uses up n / rate seconds. Unused time of the last
// second may be used later, so that the rate is reached even if rounds are rare.
//
// The round after one that a lock ended begins 5 s later: it may wait 4 s for the same lock, and the replays of other
// companies wait for it.
const (
	lockReplaySQL = `
SELECT ` + replayColumns + ` FROM dead_letter_replays
WHERE id = $1 AND status = 'RUNNING' AND next_at <= now() FOR UPDATE SKIP LOCKED`

	replayCursorSQL = `SELECT cursor_at, cursor_id FROM dead_letter_replays WHERE id = $1`

	saveReplaySQL = `
UPDATE dead_letter_replays SET
    done = done + $2, skipped = skipped + $3, failed = failed + $4,
    cursor_at = coalesce($5, cursor_at), cursor_id = coalesce($6, cursor_id),
    next_at = greatest(
        greatest(next_at, now() - interval '1 s') + ($2 + $3 + $4) * interval '1 s' / rate,
        CASE WHEN $8 THEN clock_timestamp() + interval '5 s' END),
    status = CASE WHEN $7 THEN 'COMPLETED' ELSE status END, finished_at = CASE WHEN $7 THEN now() END, updated_at = now()
WHERE id = $1 RETURNING status = 'RUNNING' AND next_at <= now()`
)

// ReplayRound is what one round did.
type ReplayRound struct {
	Replay // as it was before
	Now    ReplayCounts
	// More: the next round may begin at once.
	More     bool
	Finished bool
	// Postponed: retry left a dead letter for later. The next round begins with it.
	Postponed bool
}

// of is the number of dead letters that are counted.
func (c ReplayCounts) of() int { return c.Done + c.Skipped + c.Failed }

// WorkReplay takes the replay's next dead letters, at most limit of them. retry sends
// them again and returns the number of each resolution; those to discard are discarded here.
// If the numbers are those of fewer dead letters than retry received, they count the first ones: the round then ends
// before the next one, and the next round begins with it, 5 s later.
// Until the round is committed no other process takes the same ones. After a crash they are
// taken again: what the replay itself has resolved counts as done. The zero round means that
// nothing is due now, or another process is working on the replay.
func (s *Store) WorkReplay(
	ctx context.Context, id uuid.UUID, limit int, retry func(context.Context, Replay, []Letter) (ReplayCounts, error),
) (ReplayRound, error) {
	rounds, err := pg.Repeat(func() ([]ReplayRound, error) {
		var round ReplayRound
		err := s.db.InTx(ctx, func(tx *sqlx.Tx) (err error) {
			round, err = workReplay(ctx, tx, id, limit, retry)
			return err
		})
		return []ReplayRound{round}, err
	})
	if err != nil {
		return ReplayRound{}, fmt.Errorf("work off replay %s: %w", id, err)
	}
	return rounds[0], nil
}

func workReplay(
	ctx context.Context, tx *sqlx.Tx, id uuid.UUID, limit int, retry func(context.Context, Replay, []Letter) (ReplayCounts, error),
) (ReplayRound, error) {
	if err := pg.MayIdle(ctx, tx); err != nil {
		return ReplayRound{}, err
	}
	r, err := findReplay(ctx, tx, lockReplaySQL, id)
	switch {
	case errors.Is(err, pg.ErrNotFound):
		return ReplayRound{}, nil
	case err != nil:
		return ReplayRound{}, err
	}
	page, err := nextOfReplay(ctx, tx, r, r.share(limit))
	if err != nil {
		return ReplayRound{}, err
	}
	round := ReplayRound{Replay: r, Finished: page.Next == (LetterCursor{})}
	var open []Letter
	for _, l := range page.Letters {
		if l.ResolvedAt == nil {
			open = append(open, l)
		}
	}
	switch {
	case len(open) == 0:
	case r.Action == ReplayDiscard:
		round.Now.Done, err = discardLetters(ctx, tx, r, open)
	default:
		round.Now, err = retry(ctx, r, open)
	}
	if err != nil {
		return ReplayRound{}, err
	}
	if n := round.Now.of(); r.Action == ReplayRetry && n < len(open) {
		page = page.before(open[n].ID)
		open, round.Finished, round.Postponed = open[:n], false, true
	}
	round.Now.Done += len(page.Letters) - len(open)
	round.Finished = round.Finished || (r.Most != nil && r.of()+len(page.Letters) >= *r.Most)
	var at *time.Time
	if !page.Next.At.IsZero() {
		at = &page.Next.At
	}
	err = tx.GetContext(ctx, &round.More, saveReplaySQL, id, round.Now.Done, round.Now.Skipped, round.Now.Failed, at, pg.OptionalUUID(page.Next.ID), round.Finished, round.Postponed)
	return round, pg.Translate(err)
}

// share is how many dead letters a round may take: half a second's worth, so that
// progress is seen, and no more than the request has left.
func (r *Replay) share(limit int) int {
	limit = min(limit, max(1, r.Rate/2))
	if r.Most != nil {
		limit = min(limit, *r.Most-r.of())
	}
	return limit
}

// nextOfReplay reads along dead_letters_company or dead_letters_age, from the cursor on.
func nextOfReplay(ctx context.Context, tx *sqlx.Tx, r Replay, limit int) (LetterPage, error) {
	open := false
	q := LetterQuery{LetterFilter: r.Filter, Resolved: &open, Limit: limit}
	var cursor struct {
		At *time.Time `db:"cursor_at"`
		ID *uuid.UUID `db:"cursor_id"`
	}
	if err := tx.GetContext(ctx, &cursor, replayCursorSQL, r.ID); err != nil {
		return LetterPage{}, pg.Translate(err)
	}
	if cursor.At != nil && cursor.ID != nil {
		q.Cursor = LetterCursor{At: *cursor.At, ID: *cursor.ID}
	}
	// Dead letters of the replay's own moment count; Postgres's resolution is a microsecond.
	end := r.CreatedAt.Add(time.Microsecond)
	if q.CreatedBefore == nil || q.CreatedBefore.After(end) {
		q.CreatedBefore = &end
	}
	statement := nextLettersSQL
	if r.CompanyID == nil {
		statement = nextOfAllLettersSQL
	}
	return pageOfLetters(ctx, tx, statement, r.CompanyID, q, &r.ID)
}

// ErrReplayLocked: another transaction has locked a dead letter that the round was to discard. Nothing was discarded.
var ErrReplayLocked = errors.New("another transaction has locked a dead letter")

// discardWait is how long a round waits for each dead letter that another transaction has locked. After that the round is
// rolled back, and the rounds of other companies' replays follow.
const discardWait = 500 * time.Millisecond

// discardLetters returns how many of them were still open.
func discardLetters(ctx context.Context, tx *sqlx.Tx, r Replay, letters []Letter) (int, error) {
	ids := make([]uuid.UUID, len(letters))
	for i, l := range letters {
		ids[i] = l.ID
	}
	if _, err := tx.ExecContext(ctx, pg.BoundWaitSQL, pg.LockTimeout(discardWait)); err != nil {
		return 0, pg.Translate(err)
	}
	result, err := tx.ExecContext(ctx, discardLettersSQL, pg.UUIDArray(ids), r.RequestedBy, r.Note, r.ID)
	switch {
	case pg.IsLockTimeout(err):
		return 0, errors.Join(ErrReplayLocked, err)
	case err != nil:
		return 0, pg.Translate(err)
	}
	n, err := result.RowsAffected()
	return int(n), err
}

// cleanReplaysSQL reads the oldest ones along the primary key, whose ids hold their time,
// and locks what it deletes.
const cleanReplaysSQL = `
DELETE FROM dead_letter_replays WHERE id IN (
    SELECT id FROM dead_letter_replays ORDER BY id LIMIT $2 FOR UPDATE SKIP LOCKED)
AND finished_at < now() - $1 * interval '1 ms'`

// CleanReplays deletes replays that ended longer than age ago, of the limit oldest ones,
// and returns their number.
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
