// Package reputation decides from the provider's feedback whether the mailings of a company are paused.
//
// A rate is the number of emails that bounced permanently, or caused a complaint, divided by the number of
// emails. Both numbers count emails that the company sent in the same window, so late feedback, feedback
// about emails of last week, and an hour without emails after a large mailing do not distort the rate.
// After the mailings were resumed, only emails sent since then count.
//
// Feedback is a row of reputation_feedback for each email and kind, which a trigger adds. Sends are read
// from event_feed, only for companies with feedback, and summed by minute in reputation_sends. Any
// number of processes may check companies: each check locks its company's row of company_reputation.
package reputation

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"email-gateway/shared/store/internal/pg"
)

// Store runs the statements of the guard. It is safe for concurrent use.
type Store struct {
	db   *pg.DB
	wake func(ctx context.Context, company uuid.UUID) error
}

// New returns a Store that uses the connections of db. wake makes dispatchers read a company's lanes.
func New(db *pg.DB, wake func(ctx context.Context, company uuid.UUID) error) *Store {
	return &Store{db: db, wake: wake}
}

// dueSQL makes a skip scan of reputation_feedback_unchecked, which reads one index entry per company
// however much feedback it has, and reads the companies to check again along company_reputation_due. It
// locks nothing.
const dueSQL = `
WITH RECURSIVE unchecked AS (
    (SELECT company_id FROM reputation_feedback WHERE NOT checked ORDER BY company_id LIMIT 1)
    UNION ALL
    SELECT (SELECT f.company_id FROM reputation_feedback f WHERE NOT f.checked AND f.company_id > u.company_id ORDER BY f.company_id LIMIT 1)
    FROM unchecked u WHERE u.company_id IS NOT NULL
)
SELECT company_id FROM unchecked WHERE company_id IS NOT NULL
UNION
SELECT company_id FROM company_reputation WHERE check_at <= now()`

// Due lists the companies that have unchecked feedback or are due for another check.
func (s *Store) Due(ctx context.Context) ([]uuid.UUID, error) {
	var due []uuid.UUID
	if err := s.db.Select(ctx, &due, dueSQL); err != nil {
		return nil, fmt.Errorf("look for companies to check: %w", err)
	}
	return due, nil
}

// countPausedSQL reads companies_paused and locks nothing.
const countPausedSQL = `SELECT count(*) FROM companies WHERE mailings_paused_at IS NOT NULL`

// CountPaused returns the number of companies whose mailings are paused.
func (s *Store) CountPaused(ctx context.Context) (n int, err error) {
	if err := s.db.Get(ctx, &n, countPausedSQL); err != nil {
		return 0, fmt.Errorf("count companies with paused mailings: %w", err)
	}
	return n, nil
}
