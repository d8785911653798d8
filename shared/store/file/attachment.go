package file

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jmoiron/sqlx"

	"email-gateway/shared/store/internal/pg"
	"email-gateway/shared/store/sql"
)

// Dispositions of an attachment.
const (
	Attached = "attachment" // shown as a file
	Inline   = "inline"     // shown in the body, where the html refers to its content id
)

// Attachment is a file that an email or a mailing attaches. Link does not need the fields from Size on, which are the file's.
type Attachment struct {
	FileID      uuid.UUID `db:"file_id"`
	Filename    string    `db:"filename"`
	ContentType string    `db:"content_type"`
	ContentID   string    `db:"content_id"` // "" = none
	Disposition string    `db:"disposition"`
	Size        int64     `db:"size"`
	SHA256      []byte    `db:"sha256"`
	// MissingMS is for how many milliseconds the object has been missing or damaged; only Store.Attachments sets it. See MissingFor.
	MissingMS *int64 `db:"missing_ms"`
}

// Owned are the attachments of one owner: the id of an outbox row or of a mailing.
type Owned struct {
	Owner       uuid.UUID
	Attachments []Attachment
}

// GoneError reports that the company does not have these files, or no longer has them.
type GoneError struct{ IDs []uuid.UUID }

func (e *GoneError) Error() string { return fmt.Sprintf("%d files do not exist", len(e.IDs)) }

// holdSQL finds the files by stored_files_company_id_id_key and locks them against deletion, in the order of their ids. This lock
// conflicts with deletions only.
const holdSQL = `
SELECT id FROM stored_files WHERE company_id = $1 AND id = ANY ($2::uuid[]) ORDER BY id FOR KEY SHARE`

// Hold prevents the deletion of the files of some emails or mailings of a company until the transaction ends. The caller
// calls it before Link, and sets lock_timeout. Hold returns *GoneError if some files do not exist.
func Hold(ctx context.Context, tx *sqlx.Tx, company uuid.UUID, all ...Owned) error {
	wanted := map[uuid.UUID]bool{}
	for _, o := range all {
		for _, a := range o.Attachments {
			wanted[a.FileID] = true
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	ids := make([]uuid.UUID, 0, len(wanted))
	for id := range wanted {
		ids = append(ids, id)
	}
	var held []uuid.UUID
	if err := tx.SelectContext(ctx, &held, holdSQL, company, pg.UUIDArray(ids)); err != nil {
		return fmt.Errorf("hold files: %w", pg.Translate(err))
	}
	for _, id := range held {
		delete(wanted, id)
	}
	if len(wanted) > 0 {
		return &GoneError{IDs: slices.DeleteFunc(ids, func(id uuid.UUID) bool { return !wanted[id] })}
	}
	return nil
}

// attached is an attachment of an owner.
type attached struct {
	Attachment
	owner    uuid.UUID
	position int64
}

// linkParameters are the parameters of link_files.sql: the company, and its attachments.
var linkParameters = pg.Parameters[uuid.UUID, attached]{
	Scalars: []pg.Scalar[uuid.UUID]{pg.One("company_id", "uuid", func(company uuid.UUID) any { return company })},
	Columns: []pg.Column[attached]{
		pg.Each("owner_id", "uuid", pg.UUIDs, func(a *attached) uuid.UUID { return a.owner }),
		pg.Each("position", "bigint", pg.BigInts, func(a *attached) int64 { return a.position }),
		pg.Each("file_id", "uuid", pg.UUIDs, func(a *attached) uuid.UUID { return a.FileID }),
		pg.Each("filename", "text", pg.Texts, func(a *attached) string { return a.Filename }),
		pg.Each("content_type", "text", pg.Texts, func(a *attached) string { return a.ContentType }),
		pg.Each("content_id", "text", pg.Texts, func(a *attached) string { return a.ContentID }),
		pg.Each("disposition", "text", pg.Texts, func(a *attached) string { return a.Disposition }),
	},
}

// Link adds the attachments of new emails or mailings of a company, in the transaction that writes the emails or mailings
// and has called Hold.
func Link(ctx context.Context, tx *sqlx.Tx, company uuid.UUID, all ...Owned) error {
	var rows []attached
	for _, o := range all {
		for i, a := range o.Attachments {
			rows = append(rows, attached{a, o.Owner, int64(i)})
		}
	}
	if len(rows) == 0 {
		return nil
	}
	_, err := tx.ExecContext(ctx, sql.LinkFiles, linkParameters.Arguments(company, rows)...)
	return pg.Wrap("link files", pg.Translate(err))
}

// ofOwnersSQL is attachmentsOfSQL with one JSON object per attachment.
const ofOwnersSQL = `
SELECT jsonb_build_object('outboxId', a.owner_id, 'filename', a.filename, 'contentType', a.content_type, 'size', f.size, 'sha256', encode(f.sha256, 'hex'), 'fileId', f.id)
FROM attachments a JOIN stored_files f ON f.company_id = a.company_id AND f.id = a.file_id
WHERE a.owner_id = ANY ($2::uuid[]) AND a.company_id = $1 ORDER BY a.owner_id, a.position`

// ExportAttachments returns the attachments of emails as JSON objects, for an export.
func (s *Store) ExportAttachments(ctx context.Context, company uuid.UUID, owners []uuid.UUID) ([]json.RawMessage, error) {
	rows := []json.RawMessage{}
	if err := s.db.Select(ctx, &rows, ofOwnersSQL, company, pg.UUIDArray(owners)); err != nil {
		return nil, fmt.Errorf("list attachments: %w", pg.Translate(err))
	}
	return rows, nil
}

// attachmentsSQL reads by attachments_pkey and stored_files_company_id_id_key, and locks nothing.
const attachmentsSQL = `
SELECT a.file_id, a.filename, a.content_type, coalesce(a.content_id, '') AS content_id, a.disposition, f.size, f.sha256,
    (extract(epoch FROM now() - f.missing_since) * 1000)::bigint AS missing_ms
FROM attachments a JOIN stored_files f ON f.company_id = a.company_id AND f.id = a.file_id
WHERE a.owner_id = $2 AND a.company_id = $1 ORDER BY a.position`

// Attachments returns the attachments of an email or a mailing in their order.
func (s *Store) Attachments(ctx context.Context, company, owner uuid.UUID) ([]Attachment, error) {
	var all []Attachment
	if err := s.db.Select(ctx, &all, attachmentsSQL, company, owner); err != nil {
		return nil, fmt.Errorf("list attachments: %w", pg.Translate(err))
	}
	return all, nil
}

// attachmentsOfSQL is attachmentsSQL for many owners.
const attachmentsOfSQL = `
SELECT a.owner_id, a.file_id, a.filename, a.content_type, coalesce(a.content_id, '') AS content_id, a.disposition, f.size, f.sha256
FROM attachments a JOIN stored_files f ON f.company_id = a.company_id AND f.id = a.file_id
WHERE a.owner_id = ANY ($2::uuid[]) AND a.company_id = $1 ORDER BY a.owner_id, a.position`

// AttachmentsOf is Attachments for many emails or mailings of a company, by owner.
func (s *Store) AttachmentsOf(ctx context.Context, company uuid.UUID, owners []uuid.UUID) (map[uuid.UUID][]Attachment, error) {
	var rows []struct {
		Owner uuid.UUID `db:"owner_id"`
		Attachment
	}
	if err := s.db.Select(ctx, &rows, attachmentsOfSQL, company, pg.UUIDArray(owners)); err != nil {
		return nil, fmt.Errorf("list attachments of several emails: %w", pg.Translate(err))
	}
	all := make(map[uuid.UUID][]Attachment, len(owners))
	for _, r := range rows {
		all[r.Owner] = append(all[r.Owner], r.Attachment)
	}
	return all, nil
}
