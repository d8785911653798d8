package mailing

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"email-gateway/shared/store/internal/pg"
)

// mailingsExistSQL looks up each id by mailings_pkey and locks nothing.
const mailingsExistSQL = `SELECT id FROM mailings WHERE id = ANY ($1)`

// MailingsExist returns which of the ids are ids of mailings, of any company and in any status.
func (s *Store) MailingsExist(ctx context.Context, ids []uuid.UUID) (map[uuid.UUID]bool, error) {
	var found []uuid.UUID
	if err := s.db.SelectContext(ctx, &found, mailingsExistSQL, pg.UUIDArray(ids)); err != nil {
		return nil, fmt.Errorf("look for mailings: %w", pg.Translate(err))
	}
	exist := make(map[uuid.UUID]bool, len(found))
	for _, id := range found {
		exist[id] = true
	}
	return exist, nil
}
