package httpapi

import (
	"context"

	"github.com/google/uuid"

	"email-gateway/api/internal/access"
	"email-gateway/api/internal/httpapi/accept"
	"email-gateway/api/internal/httpapi/compose"
	"email-gateway/api/internal/httpapi/deadletters"
	"email-gateway/api/internal/httpapi/emails"
	"email-gateway/api/internal/httpapi/files"
	"email-gateway/api/internal/httpapi/health"
	"email-gateway/api/internal/httpapi/mailings"
	"email-gateway/api/internal/httpapi/recipients"
	"email-gateway/api/internal/httpapi/sending"
	"email-gateway/api/internal/httpapi/suppressions"
	"email-gateway/api/internal/httpapi/templates"
	"email-gateway/api/internal/httpapi/unsubscribepage"
	"email-gateway/api/internal/mailing"
	library "email-gateway/api/internal/templates"
	"email-gateway/shared/sesevent"
	emailstore "email-gateway/shared/store/emails"
	"email-gateway/shared/store/file"
)

// Store is the part of *store.Store that requests use: what each family of routes declares.
type Store interface {
	access.Finder
	accept.Store
	sending.Store
	emails.Store
	deadletters.Store
	recipients.Store
	suppressions.Store
	unsubscribepage.Store
	mailings.Store
	health.Store
	sesevent.Store
	Timeline(ctx context.Context, id uuid.UUID) ([]emailstore.TimelineEvent, error)
	AddFile(ctx context.Context, f file.File) (file.File, error)
}

// FileStore is the part of *file.Store that requests use.
type FileStore interface {
	compose.FileStore
	files.Store
	mailings.AttachmentStore
	UseFile(ctx context.Context, company uuid.UUID, sha256 []byte) (file.File, error)
	ClearMissing(ctx context.Context, company, id uuid.UUID) error
}

// TemplateStore is the part of *template.Store that requests use.
type TemplateStore interface {
	library.Finder
	templates.Store
}

// Bucket stores the files of mailings; see *blob.Bucket.
type Bucket interface {
	mailing.Bucket
	Ping(ctx context.Context) error
}

// Tokens are pregenerated verification tokens; see *mailing.Tokens.
type Tokens interface {
	mailing.TokenSource
	Available() int
}
