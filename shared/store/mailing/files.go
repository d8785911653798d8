package mailing

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"email-gateway/shared/store/internal/pg"
)

// mailingsWithFileSQL looks up each id by mailings_pkey and locks nothing.
const mailingsWithFileSQL = `SELECT id FROM mailings WHERE id = ANY ($1) AND file_deleted_at IS NULL`

// MailingsWithFile returns which of the ids are ids of mailings, of any company and in any status, whose file is not recorded as
// deleted. An old object of any other id is an orphan: retention does not delete the file of a mailing twice.
func (s *Store) MailingsWithFile(ctx context.Context, ids []uuid.UUID) (map[uuid.UUID]bool, error) {
	var found []uuid.UUID
	if err := s.db.SelectContext(ctx, &found, mailingsWithFileSQL, pg.UUIDArray(ids)); err != nil {
		return nil, fmt.Errorf("look for mailings: %w", pg.Translate(err))
	}
	kept := make(map[uuid.UUID]bool, len(found))
	for _, id := range found {
		kept[id] = true
	}
	return kept, nil
}
