package file

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/store/internal/pg"
)

const (
	// markMissingSQL finds the row by stored_files_company_id_id_key and locks it. An attachment does not conflict with this lock.
	markMissingSQL = `
UPDATE stored_files SET missing_since = now()
WHERE company_id = $1 AND id = $2 AND (missing_since IS NULL OR missing_since < now() - interval '1 h')`

	// clearMissingSQL is markMissingSQL for a file that can be read.
	clearMissingSQL = `UPDATE stored_files SET missing_since = NULL WHERE company_id = $1 AND id = $2`
)

// MarkedFor is how long a record of a missing file is valid. The file may be back, and not have been read since.
const MarkedFor = time.Hour

// MarkMissing records that the object of a file is not in the storage, or is damaged. An earlier record stays for MarkedFor.
func (s *Store) MarkMissing(ctx context.Context, company, id uuid.UUID) error {
	_, err := s.db.Exec(ctx, markMissingSQL, company, id)
	return pg.Wrap("mark file as missing", err)
}

// ClearMissing records that the object of a file is in the storage. It returns pg.ErrNotFound if the file was deleted.
func (s *Store) ClearMissing(ctx context.Context, company, id uuid.UUID) error {
	result, err := s.db.Exec(ctx, clearMissingSQL, company, id)
	if err != nil {
		return fmt.Errorf("mark file as stored: %w", err)
	}
	n, err := result.RowsAffected()
	if err == nil && n == 0 {
		err = pg.ErrNotFound
	}
	return pg.Wrap("mark file as stored", err)
}

// MissingFor returns for how long the object has been missing or damaged, if it is. A record may be older than MarkedFor.
func (a Attachment) MissingFor() (since time.Duration, missing bool) {
	if a.MissingMS == nil {
		return 0, false
	}
	return time.Duration(*a.MissingMS) * time.Millisecond, true
}
