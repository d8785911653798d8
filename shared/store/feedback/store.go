// Package feedback contains the SQL statements that record and apply the provider's notifications about accepted emails.
package feedback

import (
	"context"

	"github.com/google/uuid"

	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/sql"
)

// Store runs the statements. It is safe for concurrent use.
type Store struct {
	db    *pg.DB
	group *pg.Group[Feedback, recorded]

	takeFeedback, takeFreeFeedback, readFeedback, appendFeedback *pg.Prepared
}

// New returns a Store that uses the connections of db.
func New(db *pg.DB) *Store {
	s := &Store{
		db: db, takeFeedback: db.Prepare(sql.TakeFeedback), takeFreeFeedback: db.Prepare(sql.TakeFreeFeedback),
		readFeedback: db.Prepare(sql.ReadFeedback), appendFeedback: db.Prepare(sql.AppendFeedback),
	}
	s.group = pg.NewGroup(Feedback.subject, Feedback.size, func(ctx context.Context, all []Feedback) ([]recorded, error) {
		return s.recordGroup(ctx, all, pg.GroupWait)
	}).SplitWith(func(ctx context.Context, all []Feedback) ([]recorded, error) {
		return s.recordGroup(ctx, all, pg.PartWait)
	}).FairBy(func(f Feedback) uuid.UUID { return f.CompanyID })
	return s
}
