package store

import (
	"context"

	"email-gateway/shared/store/file"
)

// AddFile is file.Store.AddFile.
func (s *Store) AddFile(ctx context.Context, f file.File) (file.File, error) {
	return s.files.AddFile(ctx, f)
}
