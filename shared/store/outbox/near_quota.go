package outbox

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/quota"
)

// nearQuotas writes emails of companies that are close to a quota, in groups of one company each: the emails of one
// company wait for each other, and not for those of other companies.
type nearQuotas struct {
	store *Store

	mu     sync.Mutex
	groups map[uuid.UUID]*pg.Group[NewEmail, nearResult]
}

// nearResult is the result for one email.
type nearResult struct {
	inserted bool
	over     error // a *quota.Error
}

func newNearQuotas(s *Store) *nearQuotas {
	return &nearQuotas{store: s, groups: map[uuid.UUID]*pg.Group[NewEmail, nearResult]{}}
}

func (n *nearQuotas) insertNear(ctx context.Context, e NewEmail) (bool, error) {
	result, err := n.groupFor(e.CompanyID).Do(ctx, e)
	if err == nil {
		err = result.over
	}
	return result.inserted, err
}

func (n *nearQuotas) groupFor(company uuid.UUID) *pg.Group[NewEmail, nearResult] {
	n.mu.Lock()
	defer n.mu.Unlock()
	g := n.groups[company]
	if g == nil {
		g = pg.NewGroup(
			func(e NewEmail) string { return e.ID.String() },
			NewEmail.size,
			func(ctx context.Context, emails []NewEmail) ([]nearResult, error) {
				return n.store.insertWithinQuotas(ctx, company, emails)
			})
		n.groups[company] = g
	}
	return g
}

// waitNear waits until no group is in flight.
func (n *nearQuotas) waitNear() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, g := range n.groups {
		g.Wait()
	}
}

// insertWithinQuotas writes the emails of one company that fit its quotas, in order, in one commit. An email whose
// idempotency key was used is not written and uses no quota, so the emails that did not fit are tried again.
func (s *Store) insertWithinQuotas(ctx context.Context, company uuid.UUID, emails []NewEmail) ([]nearResult, error) {
	return quota.InTx(ctx, s.db, company, func(tx *sqlx.Tx, wait time.Duration) ([]nearResult, error) {
		wanted, err := demandOf(ctx, tx, company, emails)
		if err != nil {
			return nil, err
		}
		b, err := openBudget(ctx, tx, company, emails, wanted)
		if err != nil {
			return nil, err
		}
		results := make([]nearResult, len(emails))
		left := make([]int, len(emails))
		for i := range emails {
			left[i] = i
		}
		for {
			var fit []NewEmail
			var fitting, over []int
			for _, i := range left {
				if exceeded := b.take(&emails[i], wanted[i]); exceeded != nil {
					results[i].over = exceeded
					over = append(over, i)
					continue
				}
				results[i].over = nil
				fit, fitting = append(fit, emails[i]), append(fitting, i)
			}
			if len(fit) == 0 {
				return results, nil
			}
			inserted, err := insertEmailsIn(ctx, tx, fit, wait)
			if err != nil {
				return nil, err
			}
			returned := false
			for n, i := range fitting {
				if results[i].inserted = inserted[fit[n].ID]; !results[i].inserted {
					b.release(&emails[i], wanted[i])
					returned = true
				}
			}
			if len(over) == 0 || !returned {
				return results, nil
			}
			left = over
		}
	})
}

// insertEmailsIn writes emails in a transaction, waits for each lock at most as long as wait, and reports which were
// written.
func insertEmailsIn(ctx context.Context, tx *sqlx.Tx, emails []NewEmail, wait time.Duration) (map[uuid.UUID]bool, error) {
	var ids []uuid.UUID
	if err := tx.SelectContext(ctx, &ids, acceptStatement(emails), acceptArguments(emails, wait)...); err != nil {
		return nil, fmt.Errorf("insert emails: %w", pg.Translate(err))
	}
	inserted := make(map[uuid.UUID]bool, len(ids))
	for _, id := range ids {
		inserted[id] = true
	}
	return inserted, nil
}
