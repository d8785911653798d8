package deadletter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"email-gateway/shared/store/internal/pg"
)

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

// total is the number of counted dead letters.
func (c ReplayCounts) total() int { return c.Done + c.Skipped + c.Failed }

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
		return ReplayRound{}, fmt.Errorf("process replay %s: %w", id, err)
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
	if n := round.Now.total(); r.Action == ReplayRetry && n < len(open) {
		page = page.before(open[n].ID)
		open, round.Finished, round.Postponed = open[:n], false, true
	}
	round.Now.Done += len(page.Letters) - len(open)
	round.Finished = round.Finished || (r.Most != nil && r.total()+len(page.Letters) >= *r.Most)
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
		limit = min(limit, *r.Most-r.total())
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
