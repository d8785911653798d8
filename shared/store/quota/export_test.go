package quota

import (
	"context"

	"github.com/google/uuid"
)

const FoldQuotasSQL = foldQuotasSQL

func (s *Store) BeginCount(ctx context.Context, company uuid.UUID) (*count, error) {
	return s.beginCount(ctx, company)
}

func (s *Store) CountPage(ctx context.Context, c *count, page int) (last bool, err error) {
	return c.next(ctx, s, page)
}

func (s *Store) EndCount(ctx context.Context, c *count) error { return c.end(ctx, s) }
