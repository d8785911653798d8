// Package mailings accepts mailings from CSV files, and shows and controls them. Create in create.go
// is the path of an upload.
package mailings

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"log/slog"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/google/uuid"

	"email-gateway/api/internal/httpapi/accept"
	"email-gateway/api/internal/httpapi/compose"
	"email-gateway/api/internal/httpapi/slots"
	"email-gateway/api/internal/mailing"
	"email-gateway/api/internal/strictjson"
	"email-gateway/api/internal/templates"
	"email-gateway/shared/keyring"
	"email-gateway/shared/rules"
	"email-gateway/shared/store/file"
	"email-gateway/shared/store/lane"
	mailingstore "email-gateway/shared/store/mailing"
	"email-gateway/shared/store/mailingreport"
	"email-gateway/shared/telemetry"
	"email-gateway/shared/unsubscribe"
)

// Store is the part of *store.Store that mailings use.
type Store interface {
	IngestMailing(ctx context.Context, m mailingstore.NewMailing, lines iter.Seq2[mailingstore.Line, error]) (mailingstore.Counts, []byte, error)
	MailingExists(ctx context.Context, id uuid.UUID) (bool, error)
	FindMailing(ctx context.Context, company, id uuid.UUID) (mailingstore.Mailing, error)
	ListMailings(ctx context.Context, company, before uuid.UUID, limit int) ([]mailingstore.Mailing, error)
	MailingEntries(ctx context.Context, company, id uuid.UUID, f mailingstore.EntryFilter) ([]mailingstore.Entry, error)
	MailingRows(ctx context.Context, company, id uuid.UUID, f mailingreport.RowFilter) (mailingreport.RowPage, error)
	MailingVerdicts(ctx context.Context, company, id uuid.UUID) iter.Seq2[mailingstore.RejectedLine, error]
	StartMailing(ctx context.Context, company, id uuid.UUID) (mailingstore.Mailing, error)
	PauseMailing(ctx context.Context, company, id uuid.UUID) (mailingstore.Mailing, error)
	ResumeMailing(ctx context.Context, company, id uuid.UUID) (mailingstore.Mailing, error)
	CancelMailing(ctx context.Context, company, id uuid.UUID) (mailingstore.Mailing, error)
	MoveMailing(ctx context.Context, company, id uuid.UUID, at time.Time) (mailingstore.Mailing, error)
	RetryFailedEntries(ctx context.Context, company, id uuid.UUID) (mailingstore.Mailing, error)
}

// AttachmentStore finds the attachments of mailings. Its statements take no slots.
type AttachmentStore interface {
	Attachments(ctx context.Context, company, owner uuid.UUID) ([]file.Attachment, error)
	AttachmentsOf(ctx context.Context, company uuid.UUID, owners []uuid.UUID) (map[uuid.UUID][]file.Attachment, error)
}

// Params are the dependencies of Handlers. All are required except HashKey and, without RabbitMQ,
// Bucket and Tokens.
type Params struct {
	Log             *slog.Logger
	Store           Store
	AttachmentStore AttachmentStore
	// Slots limits the statements of one company.
	Slots  slots.Slots
	Accept *accept.Committer
	// StillValid checks the key of a request that takes long again.
	StillValid  func(*gin.Context) error
	Attachments *compose.Files
	HTML        *compose.Checker
	Library     *templates.Library
	Rules       *rules.Rules
	SendAt      *compose.SendAtReader
	// Ring encrypts CPFs and CNPJs, HashKey keys their hashes.
	Ring    keyring.Ring
	HashKey []byte
	Bucket  mailing.Bucket
	Tokens  mailing.TokenSource
	// PublicURL is the address at which recipients reach this api; Links encrypts the unsubscribe
	// links that begin with it.
	PublicURL string
	Links     unsubscribe.Keys
	// IngestTime limits writing a mailing to Postgres; 0 = IngestTime.
	IngestTime time.Duration
	// TTL is the time after acceptance within which a test email must reach the provider.
	TTL    time.Duration
	Tracer telemetry.Tracer
	// Wake notifies the dispatchers that these lanes have work.
	Wake func(lanes ...lane.Lanes)
}

// Handlers handle the requests about mailings.
type Handlers struct {
	Params
	attachmentsReader *strictjson.Reader[attachmentsPart]
	files             mailing.FileStore
	uploads           uploadLimits
	downloads         downloadLimits
}

// New returns Handlers with the limits of uploads and downloads.
func New(p Params) (*Handlers, error) {
	attachments, err := strictjson.NewReader[attachmentsPart]()
	if err != nil {
		return nil, fmt.Errorf("prepare attachments of mailings: %w", err)
	}
	p.IngestTime = cmp.Or(p.IngestTime, IngestTime)
	return &Handlers{
		Params: p, attachmentsReader: attachments, files: mailing.FileStore{Bucket: p.Bucket, Ring: p.Ring},
		uploads: newUploadLimits(), downloads: newDownloadLimits(),
	}, nil
}
