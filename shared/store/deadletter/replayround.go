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

// dueReplaysSQL reads dead_letter_replays_open and locks nothing.
const dueReplaysSQL = `
SELECT id, coalesce(company_id, '00000000-0000-0000-0000-000000000000') AS company_id FROM dead_letter_replays
WHERE status = 'RUNNING' AND next_at <= now() ORDER BY next_at, id`

// DueReplay is a replay that has dead letters to process now and whose rate permits it.
type DueReplay struct {
	ID        uuid.UUID `db:"id"`
	CompanyID uuid.UUID `db:"company_id"` // uuid.Nil = all companies
}

// DueReplays lists the due replays, those that have been due for longest first.
func (s *Store) DueReplays(ctx context.Context) ([]DueReplay, error) {
	var due []DueReplay
	if err := s.db.SelectContext(ctx, &due, dueReplaysSQL); err != nil {
		return nil, fmt.Errorf("list replays: %w", pg.Translate(err))
	}
	return due, nil
}

// A round locks the row of the replay until its commit, so that two processes do not take the same dead letters; the second
// process skips the replay.
//
// A round of n dead letters uses up n / rate seconds. Unused time of the last second is carried over, so that the rate is
// reached even if rounds are rare.
//
// After a postponed round ($8) the next one begins 5 s later: of a recipient import or a mailing, it may wait 4 s for the same
// lock, and the replays of other companies wait meanwhile.
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

// ReplayRound is the result of one round.
type ReplayRound struct {
	Replay // as of the begin of the round
	Now    ReplayCounts
	// More: the next round may begin at once.
	More     bool
	Finished bool
	// Postponed: retry left a dead letter for a later round. The next round begins with it.
	Postponed bool
}

// total is the number of counted dead letters.
func (c ReplayCounts) total() int { return c.Done + c.Skipped + c.Failed }

// WorkReplay takes the next dead letters of the replay, at most limit. It discards them itself, or calls retry, which sends
// them again and returns how many had each result. retry may process only the first of them: if its counts add up to fewer than
// it received, the next round begins with the first one that is left, 5 s later.
//
// Until the round is committed no other process takes the same dead letters. After a crash they are taken again, and those that
// the replay has already resolved count as done. WorkReplay returns the zero ReplayRound if the replay is not due, or if
// another process is working on it.
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

// share returns how many dead letters a round may take: half of the rate, so that the stored progress changes twice a second,
// and no more than the replay has left.
func (r *Replay) share(limit int) int {
	limit = min(limit, max(1, r.Rate/2))
	if r.Most != nil {
		limit = min(limit, *r.Most-r.total())
	}
	return limit
}

// nextOfReplay reads the next page from the cursor on, along dead_letters_company or dead_letters_age.
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
	// CreatedBefore is exclusive, and a timestamptz has a resolution of 1 µs: dead letters of the replay's creation time match.
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

// ErrReplayLocked: another transaction has locked a dead letter that the round had to discard. Nothing was discarded.
var ErrReplayLocked = errors.New("another transaction has locked a dead letter")

// discardWait is how long a round waits for each dead letter that another transaction has locked. Then the round is rolled
// back, and the replays of other companies are processed.
const discardWait = 500 * time.Millisecond

// discardLetters discards the dead letters and returns how many of them were still open.
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
