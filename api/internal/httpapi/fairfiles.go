package httpapi

import (
	"context"

	"github.com/google/uuid"

	"email-gateway/api/internal/httpapi/slots"
	"email-gateway/shared/store/file"
)

// fairFiles is the file store with the concurrency limit of fairStore. Lookups for sending have the slots of lookups.
type fairFiles struct {
	FileStore
	fair slots.Slots
}

func (f fairFiles) UseFile(ctx context.Context, company uuid.UUID, sha256 []byte) (file.File, error) {
	return slots.Run(ctx, f.fair.ForLookUp(), company, func() (file.File, error) { return f.FileStore.UseFile(ctx, company, sha256) })
}

func (f fairFiles) ClearMissing(ctx context.Context, company, id uuid.UUID) error {
	_, err := slots.Run(ctx, f.fair, company, func() (struct{}, error) { return struct{}{}, f.FileStore.ClearMissing(ctx, company, id) })
	return err
}

func (f fairFiles) Find(ctx context.Context, company uuid.UUID, ids []uuid.UUID) (map[uuid.UUID]file.File, error) {
	return slots.Run(ctx, f.fair.ForLookUp(), company, func() (map[uuid.UUID]file.File, error) { return f.FileStore.Find(ctx, company, ids) })
}

func (f fairFiles) List(ctx context.Context, company, before uuid.UUID, limit int) ([]file.File, error) {
	return slots.Run(ctx, f.fair, company, func() ([]file.File, error) { return f.FileStore.List(ctx, company, before, limit) })
}

func (f fairFiles) Attachments(ctx context.Context, company, owner uuid.UUID) ([]file.Attachment, error) {
	return slots.Run(ctx, f.fair, company, func() ([]file.Attachment, error) { return f.FileStore.Attachments(ctx, company, owner) })
}

func (f fairFiles) AttachmentsOf(ctx context.Context, company uuid.UUID, owners []uuid.UUID) (map[uuid.UUID][]file.Attachment, error) {
	return slots.Run(ctx, f.fair, company, func() (map[uuid.UUID][]file.Attachment, error) {
		return f.FileStore.AttachmentsOf(ctx, company, owners)
	})
}

// fileRows are the rows about files that storing a content uses.
type fileRows struct {
	fairFiles
	rows interface {
		AddFile(ctx context.Context, f file.File) (file.File, error)
	}
}

func (r fileRows) AddFile(ctx context.Context, f file.File) (file.File, error) {
	return slots.Run(ctx, r.fair, f.CompanyID, func() (file.File, error) { return r.rows.AddFile(ctx, f) })
}
