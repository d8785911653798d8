package retention

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/store/internal/pg"
)

// MailingFile is the uploaded file of a mailing.
type MailingFile struct {
	MailingID uuid.UUID `db:"id"`
	CompanyID uuid.UUID `db:"company_id"`
	// Ended is when the mailing ended. Only DueFiles sets it.
	Ended time.Time `db:"ended"`
}

// dueFilesSQL scans mailings_files from $3 on, sorts mailings that ended at the same time by id, and looks companies up by
// company_retention_pkey. It locks nothing. A mailing that was cancelled and never started does not need its file.
const dueFilesSQL = `
SELECT m.id, m.company_id, coalesce(m.completed_at, m.updated_at) AS ended
FROM mailings m LEFT JOIN company_retention r ON r.company_id = m.company_id
WHERE m.file_deleted_at IS NULL AND m.status IN ('COMPLETED', 'CANCELLED', 'FAILED')
  AND (coalesce(m.completed_at, m.updated_at) < now() - coalesce(r.files_days * interval '1 day', $1 * interval '1 ms')
       OR m.status = 'CANCELLED' AND m.generation = 0)
  AND (coalesce(m.completed_at, m.updated_at), m.id) > ($3, $4)
ORDER BY coalesce(m.completed_at, m.updated_at), m.id LIMIT $2`

// DueFiles lists at most limit files of mailings that ended longer ago than age, or than their
// company's own retention (age 0 = only companies with such a retention), and of mailings that
// were cancelled and never started. It sorts them by the time at which the mailing ended, and starts
// behind the file after; the zero value starts at the beginning.
func (s *Store) DueFiles(ctx context.Context, age time.Duration, after MailingFile, limit int) ([]MailingFile, error) {
	var files []MailingFile
	if err := s.db.SelectContext(ctx, &files, dueFilesSQL, milliseconds(age), limit, after.Ended, after.MailingID); err != nil {
		return nil, fmt.Errorf("list files past their time: %w", pg.Translate(err))
	}
	return files, nil
}

// milliseconds returns an age in ms, or NULL for 0, which means unlimited.
func milliseconds(age time.Duration) *int64 {
	if age == 0 {
		return nil
	}
	ms := age.Milliseconds()
	return &ms
}

// markFilesSQL locks the mailings' rows by primary key.
const markFilesSQL = `UPDATE mailings SET file_deleted_at = now() WHERE id = ANY ($1::uuid[]) AND file_deleted_at IS NULL`

// MarkFilesDeleted records that the files of these mailings are deleted, and returns how
// many were not marked before.
func (s *Store) MarkFilesDeleted(ctx context.Context, mailings []uuid.UUID) (int, error) {
	result, err := s.db.Exec(ctx, markFilesSQL, pg.UUIDArray(mailings))
	if err != nil {
		return 0, fmt.Errorf("mark files deleted: %w", err)
	}
	n, err := result.RowsAffected()
	if err != nil {
		return 0, fmt.Errorf("mark files deleted: %w", err)
	}
	return int(n), nil
}
