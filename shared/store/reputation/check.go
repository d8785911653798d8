package reputation

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"email-gateway/shared/store/event"
	"email-gateway/shared/store/internal/pg"
)

const (
	// lockWait is how long a check waits for a lock, such as that on its company's row in companies.
	lockWait = time.Second
	// checkAgain is the delay until the next check of a company whose rate may reach a threshold without
	// new feedback.
	checkAgain = 20 * time.Second
	// feedbackRows is the maximum number of new feedback rows that one check processes.
	feedbackRows = 5000
)

const (
	// addCompanySQL inserts the company's row, unless it exists.
	addCompanySQL = `INSERT INTO company_reputation (company_id) SELECT id FROM companies WHERE id = $1 ON CONFLICT (company_id) DO NOTHING`

	// lockSQL locks the company's row by primary key, and returns none if another process has locked it.
	lockSQL = `
SELECT coalesce(r.feed_position, 0) AS feed_position, greatest(r.counts_from, g.counts_from) AS counts_from,
       coalesce(r.enabled, g.enabled) AS enabled, r.warnings, c.mailings_paused_at IS NOT NULL AS paused, now() AS now
FROM company_reputation r JOIN companies c ON c.id = r.company_id JOIN reputation_guard g ON g.singleton
WHERE r.company_id = $1 FOR UPDATE OF r SKIP LOCKED`

	// markSQL finds feedback along reputation_feedback_unchecked and locks it; locked rows stay unchecked.
	// The rows that it marks are committed, so the measurement that follows counts them.
	markSQL = `
UPDATE reputation_feedback SET checked = true
WHERE company_id = $1 AND NOT checked AND outbox_id = ANY (ARRAY(
    SELECT outbox_id FROM reputation_feedback WHERE company_id = $1 AND NOT checked LIMIT $2 FOR UPDATE SKIP LOCKED))`

	// pauseSQL locks the company's row by primary key. The fence and the dispatcher read mailings_paused_at,
	// so no email of a mailing of the company starts after the commit.
	pauseSQL = `UPDATE companies SET mailings_paused_at = now() WHERE id = $1 AND mailings_paused_at IS NULL`

	// saveSQL writes the row that lockSQL has locked.
	saveSQL = `
UPDATE company_reputation SET feed_position = nullif($2, 0), checked_at = now(), check_at = CASE WHEN $3 > 0 THEN now() + $3 * interval '1 ms' END,
    warnings = $4, pause = coalesce($5, pause)
WHERE company_id = $1`
)

// state is a company's row of company_reputation.
type state struct {
	FeedPosition int64           `db:"feed_position"`
	CountsFrom   time.Time       `db:"counts_from"`
	Enabled      bool            `db:"enabled"`
	Warnings     json.RawMessage `db:"warnings"`
	Paused       bool            `db:"paused"`
	Now          time.Time       `db:"now"`
}

// Checked is the result of a check.
type Checked struct {
	// Skipped: another process is checking the company.
	Skipped bool
	// Paused is why this check paused the mailings; nil = it did not.
	Paused *Finding
	// Warnings are rules that are close to a pause. A rule warns once in its window.
	Warnings []Finding
	// More: the company may have more unchecked feedback.
	More bool
}

// Check evaluates the company's feedback and pauses its mailings if a threshold is reached. The pause
// and the event that informs the tenant are one commit.
func (s *Store) Check(ctx context.Context, company uuid.UUID) (Checked, error) {
	err := s.boundedly(ctx, func(tx *sqlx.Tx) error {
		_, err := tx.ExecContext(ctx, addCompanySQL, company)
		return pg.Translate(err)
	})
	if err != nil {
		return Checked{}, fmt.Errorf("check reputation: %w", err)
	}
	var done Checked
	err = s.boundedly(ctx, func(tx *sqlx.Tx) (err error) {
		done, err = check(ctx, tx, company)
		return err
	})
	if err != nil {
		return Checked{}, fmt.Errorf("check reputation: %w", err)
	}
	return done, nil
}

// boundedly runs do in a transaction that waits for each lock for lockWait at most.
func (s *Store) boundedly(ctx context.Context, do func(tx *sqlx.Tx) error) error {
	return s.db.InTx(ctx, func(tx *sqlx.Tx) error {
		if _, err := tx.ExecContext(ctx, pg.BoundWaitSQL, pg.LockTimeout(lockWait)); err != nil {
			return pg.Translate(err)
		}
		return do(tx)
	})
}

func check(ctx context.Context, tx *sqlx.Tx, company uuid.UUID) (Checked, error) {
	var st state
	switch err := tx.GetContext(ctx, &st, lockSQL, company); {
	case errors.Is(err, sql.ErrNoRows):
		return Checked{Skipped: true}, nil
	case err != nil:
		return Checked{}, pg.Translate(err)
	}
	marked, err := tx.ExecContext(ctx, markSQL, company, feedbackRows)
	if err != nil {
		return Checked{}, pg.Translate(err)
	}
	n, err := marked.RowsAffected()
	if err != nil {
		return Checked{}, fmt.Errorf("mark feedback: %w", err)
	}
	done := Checked{More: n >= feedbackRows}
	if !st.Enabled || st.Paused {
		return done, save(ctx, tx, company, st, nil, false)
	}
	if st.FeedPosition, err = countSends(ctx, tx, company, st.FeedPosition, st.CountsFrom, st.Now); err != nil {
		return Checked{}, fmt.Errorf("count sends: %w", err)
	}
	e, err := evaluateIn(ctx, tx, company, st)
	if err != nil {
		return Checked{}, err
	}
	if e.pause != nil {
		changed, err := tx.ExecContext(ctx, pauseSQL, company)
		if err != nil {
			return Checked{}, fmt.Errorf("pause mailings: %w", pg.Translate(err))
		}
		n, err := changed.RowsAffected()
		switch {
		case err != nil:
			return Checked{}, fmt.Errorf("pause mailings: %w", err)
		case n == 0: // another process has paused them since lockSQL read the company
			return done, save(ctx, tx, company, st, nil, false)
		}
		done.Paused = e.pause
		if err := event.AddOfCompany(ctx, tx, company, event.MailingsPaused, e.pause); err != nil {
			return Checked{}, err
		}
		return done, save(ctx, tx, company, st, e.pause, false)
	}
	if done.Warnings, st.Warnings, err = freshWarnings(st, e.warn); err != nil {
		return Checked{}, err
	}
	for _, w := range done.Warnings {
		if err := event.AddOfCompany(ctx, tx, company, event.ReputationWarning, w); err != nil {
			return Checked{}, err
		}
	}
	return done, save(ctx, tx, company, st, nil, e.near)
}

func evaluateIn(ctx context.Context, tx *sqlx.Tx, company uuid.UUID, st state) (evaluation, error) {
	rules, err := rulesOf(ctx, tx, company)
	if err != nil {
		return evaluation{}, err
	}
	measured, err := measure(ctx, tx, company, st.CountsFrom)
	if err != nil {
		return evaluation{}, err
	}
	thresholds := make(map[Rule]Thresholds, len(rules))
	for _, r := range rules {
		thresholds[r.Rule] = r.Thresholds
	}
	return evaluate(thresholds, measured), nil
}

// freshWarnings omits rules that have already warned in their window, and returns when each rule
// warned last.
func freshWarnings(st state, found []Finding) (fresh []Finding, times json.RawMessage, err error) {
	last := make(map[Rule]time.Time)
	if err := json.Unmarshal(st.Warnings, &last); err != nil {
		return nil, nil, fmt.Errorf("decode warnings: %w", err)
	}
	for _, f := range found {
		if at, warned := last[f.Rule]; !warned || st.Now.Sub(at) >= f.Rule.Window() {
			fresh = append(fresh, f)
			last[f.Rule] = st.Now
		}
	}
	times, err = json.Marshal(last)
	if err != nil {
		return nil, nil, fmt.Errorf("encode warnings: %w", err)
	}
	return fresh, times, nil
}

func save(ctx context.Context, tx *sqlx.Tx, company uuid.UUID, st state, pause *Finding, near bool) error {
	var reason *string
	if pause != nil {
		encoded, err := json.Marshal(pause)
		if err != nil {
			return fmt.Errorf("encode the reason of the pause: %w", err)
		}
		text := string(encoded)
		reason = &text
	}
	var again int64
	if near {
		again = checkAgain.Milliseconds()
	}
	if _, err := tx.ExecContext(ctx, saveSQL, company, st.FeedPosition, again, string(st.Warnings), reason); err != nil {
		return fmt.Errorf("save the check: %w", pg.Translate(err))
	}
	return nil
}
