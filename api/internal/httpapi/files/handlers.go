// Package files stores the files that emails can attach, and shows and lists them.
package files

import (
	"context"

	"github.com/google/uuid"

	"email-gateway/api/internal/attachment"
	"email-gateway/shared/rules"
	"email-gateway/shared/store/file"
)

// Path is the path of stored files.
const Path = "/v1/files"

// Store is the part of *file.Store that requests about files use.
type Store interface {
	Find(ctx context.Context, company uuid.UUID, ids []uuid.UUID) (map[uuid.UUID]file.File, error)
	List(ctx context.Context, company, before uuid.UUID, limit int) ([]file.File, error)
}

// Handlers handle the requests about files.
type Handlers struct {
	store   Store
	library *attachment.Library
	rules   *rules.Rules
}

// New returns Handlers.
func New(s Store, library *attachment.Library, checks *rules.Rules) *Handlers {
	return &Handlers{store: s, library: library, rules: checks}
}
