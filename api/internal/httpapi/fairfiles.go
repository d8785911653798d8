package httpapi

import (
	"context"

	"github.com/google/uuid"

	"email-gateway/shared/store/file"
)

// fairFiles is the file store with the concurrency limit of fairStore. Lookups for sending have the slots of lookups.
type fairFiles struct {
	FileStore
	fair fairStore
}

func (f fairFiles) UseFile(ctx context.Context, company uuid.UUID, sha256 []byte) (file.File, error) {
	return inPlace(ctx, f.fair.forLookUp(), company, func() (file.File, error) { return f.FileStore.UseFile(ctx, company, sha256) })
}

func (f fairFiles) Find(ctx context.Context, company uuid.UUID, ids []uuid.UUID) (map[uuid.UUID]file.File, error) {
	return inPlace(ctx, f.fair.forLookUp(), company, func() (map[uuid.UUID]file.File, error) { return f.FileStore.Find(ctx, company, ids) })
}

func (f fairFiles) List(ctx context.Context, company, before uuid.UUID, limit int) ([]file.File, error) {
	return inPlace(ctx, f.fair, company, func() ([]file.File, error) { return f.FileStore.List(ctx, company, before, limit) })
}

func (f fairFiles) Attachments(ctx context.Context, company, owner uuid.UUID) ([]file.Attachment, error) {
	return inPlace(ctx, f.fair, company, func() ([]file.Attachment, error) { return f.FileStore.Attachments(ctx, company, owner) })
}

func (f fairFiles) AttachmentsOf(ctx context.Context, company uuid.UUID, owners []uuid.UUID) (map[uuid.UUID][]file.Attachment, error) {
	return inPlace(ctx, f.fair, company, func() (map[uuid.UUID][]file.Attachment, error) {
		return f.FileStore.AttachmentsOf(ctx, company, owners)
	})
}
