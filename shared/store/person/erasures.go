package person

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/internal/pgtext"
)

// These statements find rows by primary key, except openErasuresSQL, which reads all of person_erasures: the table
// contains only unfinished erasures.
const (
	beginErasureSQL  = `INSERT INTO person_erasures (id, company_id, person) VALUES ($1, $2, $3) ON CONFLICT (id) DO NOTHING`
	openErasuresSQL  = `SELECT id, person FROM person_erasures WHERE company_id = $1 ORDER BY id`
	saveReceiptSQL   = `UPDATE person_erasures SET receipt = $2 WHERE id = $1`
	receiptsSQL      = `SELECT receipt FROM person_erasures WHERE id = ANY ($1::uuid[]) AND receipt IS NOT NULL ORDER BY id`
	finishErasureSQL = `DELETE FROM person_erasures WHERE id = ANY ($1::uuid[])`
	// forgetTasksSQL finds rows by erased_tasks_erasure. It also deletes tasks that a dispatcher
	// removed more than a day ago, possibly after their erasure was finished.
	forgetTasksSQL = `DELETE FROM erased_tasks WHERE done_at IS NOT NULL AND (erasure_id = ANY ($1::uuid[]) OR done_at < now() - interval '1 day')`
)

// BeginErasure stores the identifiers of the person until FinishErasure, because the erasure removes
// them from other rows. It also continues unfinished erasures that have an address, hash or id in
// common with p: it adds their identifiers to p and returns their ids too. Pass all returned ids to
// FinishErasure.
func (s *Store) BeginErasure(ctx context.Context, id uuid.UUID, p *Person) (erasures []uuid.UUID, err error) {
	var open []struct {
		ID     uuid.UUID `db:"id"`
		Person []byte    `db:"person"`
	}
	if err := s.db.SelectContext(ctx, &open, openErasuresSQL, p.CompanyID); err != nil {
		return nil, fmt.Errorf("list erasures: %w", pg.Translate(err))
	}
	erasures = []uuid.UUID{id}
	for grown := true; grown; {
		grown = false
		for _, o := range open {
			var known Person
			if err := json.Unmarshal(o.Person, &known); err != nil {
				return nil, fmt.Errorf("read erasure %s: %w", o.ID, err)
			}
			if slices.Contains(erasures, o.ID) || !p.sharesIdentifier(known) {
				continue
			}
			p.Addresses, p.Hashes = append(p.Addresses, known.Addresses...), append(p.Hashes, known.Hashes...)
			p.Recipients, p.ExternalIDs = append(p.Recipients, known.Recipients...), append(p.ExternalIDs, known.ExternalIDs...)
			p.Shared, p.SharedIDs = append(p.Shared, known.Shared...), append(p.SharedIDs, known.SharedIDs...)
			p.SharedNumbers, p.SharedRecipients = append(p.SharedNumbers, known.SharedNumbers...), append(p.SharedRecipients, known.SharedRecipients...)
			*p = p.sorted()
			p.Shared = slices.DeleteFunc(p.Shared, func(a string) bool { return slices.Contains(p.Addresses, a) })
			p.SharedIDs = slices.DeleteFunc(p.SharedIDs, func(id string) bool { return slices.Contains(p.ExternalIDs, id) })
			p.SharedNumbers = slices.DeleteFunc(p.SharedNumbers, func(hash string) bool { return slices.Contains(p.Hashes, hash) })
			p.SharedRecipients = slices.DeleteFunc(p.SharedRecipients, func(id uuid.UUID) bool { return slices.Contains(p.Recipients, id) })
			erasures, grown = append(erasures, o.ID), true
		}
	}
	encoded, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("encode person: %w", err)
	}
	_, err = s.db.Exec(ctx, beginErasureSQL, id, p.CompanyID, string(pgtext.WithoutEscapedNUL(encoded)))
	return erasures, pg.Wrap("begin erasure", err)
}

// SaveReceipt stores the changes of an erasure so far, until FinishErasure.
func (s *Store) SaveReceipt(ctx context.Context, erasure uuid.UUID, receipt []byte) error {
	_, err := s.db.Exec(ctx, saveReceiptSQL, erasure, string(pgtext.WithoutEscapedNUL(receipt)))
	return pg.Wrap("save receipt of erasure", err)
}

// Receipts returns what SaveReceipt stored for the unfinished ones of these erasures, oldest first.
func (s *Store) Receipts(ctx context.Context, erasures []uuid.UUID) (receipts [][]byte, err error) {
	if err := s.db.SelectContext(ctx, &receipts, receiptsSQL, pg.UUIDArray(erasures)); err != nil {
		return nil, fmt.Errorf("load receipts of erasures: %w", pg.Translate(err))
	}
	return receipts, nil
}

// sharesIdentifier reports whether p and q have an identifier in common.
func (p *Person) sharesIdentifier(q Person) bool {
	return !disjoint(p.Addresses, q.Addresses) || !disjoint(p.Hashes, q.Hashes) || !disjoint(p.Recipients, q.Recipients) || !disjoint(p.ExternalIDs, q.ExternalIDs)
}

func disjoint[T comparable](a, b []T) bool {
	return !slices.ContainsFunc(a, func(v T) bool { return slices.Contains(b, v) })
}

// FinishErasure deletes the stored identifiers, receipts and completed tasks of the erasures.
func (s *Store) FinishErasure(ctx context.Context, erasures []uuid.UUID) error {
	return pg.Wrap("finish erasure", s.db.InTx(ctx, func(tx *sqlx.Tx) error {
		for _, statement := range []string{finishErasureSQL, forgetTasksSQL} {
			if _, err := tx.ExecContext(ctx, statement, pg.UUIDArray(erasures)); err != nil {
				return pg.Translate(err)
			}
		}
		return nil
	}))
}

// countTasksSQL finds rows by erased_tasks_erasure and locks nothing.
const countTasksSQL = `
SELECT count(*) FILTER (WHERE found) AS removed, count(*) FILTER (WHERE done_at IS NULL) AS open FROM erased_tasks WHERE erasure_id = ANY ($1::uuid[])`

// ErasedTaskCounts is how many tasks of erased emails the dispatchers have processed.
type ErasedTaskCounts struct {
	Removed int `json:"removed"` // Redis had them
	Open    int `json:"open"`    // no dispatcher has processed them yet
}

// CountErasedTasks counts the tasks of erasures.
func (s *Store) CountErasedTasks(ctx context.Context, erasures []uuid.UUID) (n ErasedTaskCounts, err error) {
	if err := s.db.GetContext(ctx, &n, countTasksSQL, pg.UUIDArray(erasures)); err != nil {
		return n, fmt.Errorf("count tasks of erased emails: %w", pg.Translate(err))
	}
	return n, nil
}
