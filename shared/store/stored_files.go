package store

import (
	"context"

	"email-gateway/shared/store/file"
)

// AddFile is file.Store.Add.
func (s *Store) AddFile(ctx context.Context, f file.File) (file.File, error) {
	return s.files.Add(ctx, f)
}
