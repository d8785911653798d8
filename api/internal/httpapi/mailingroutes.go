package httpapi

import (
	"context"
	"iter"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/google/uuid"

	"email-gateway/api/internal/apikey"
	"email-gateway/api/internal/mailing"
	"email-gateway/shared/store"
)

// MailingStore is the part of *store.Store that mailings use.
type MailingStore interface {
	IngestMailing(ctx context.Context, m store.NewMailing, lines iter.Seq2[store.MailingLine, error]) (store.MailingCounts, []byte, error)
	MailingExists(ctx context.Context, id uuid.UUID) (bool, error)
	FindMailing(ctx context.Context, company, id uuid.UUID) (store.Mailing, error)
	ListMailings(ctx context.Context, company, before uuid.UUID, limit int) ([]store.Mailing, error)
	MailingEntries(ctx context.Context, company, id uuid.UUID, f store.EntryFilter) ([]store.MailingEntry, error)
	MailingRows(ctx context.Context, company, id uuid.UUID, f store.RowFilter) (store.RowPage, error)
	MailingVerdicts(ctx context.Context, company, id uuid.UUID) iter.Seq2[store.RejectedLine, error]
	StartMailing(ctx context.Context, company, id uuid.UUID) (store.Mailing, error)
	PauseMailing(ctx context.Context, company, id uuid.UUID) (store.Mailing, error)
	ResumeMailing(ctx context.Context, company, id uuid.UUID) (store.Mailing, error)
	CancelMailing(ctx context.Context, company, id uuid.UUID) (store.Mailing, error)
	MoveMailing(ctx context.Context, company, id uuid.UUID, at time.Time) (store.Mailing, error)
	RetryFailedEntries(ctx context.Context, company, id uuid.UUID) (store.Mailing, error)
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

// newMailingService creates the limits of uploads.
func newMailingService(p Params) *mailingService {
	i := &mailingService{
		files:  mailing.FileStore{Bucket: p.Bucket, Ring: p.Ring},
		tokens: p.Tokens, links: p.UnsubscribeKeys, publicURL: p.PublicURL,
		forms:   mailing.NewLimiter(formsAtOnce, formsOfEach),
		uploads: mailing.NewLimiter(uploadsAtOnce, uploadsOfEach),
		ingests: mailing.NewLimiter(ingestsAtOnce, ingestsOfEach),
		pace:    minPace,
		open:    newOpenUploads(),
	}
	i.forms.MakeRoom(i.open.waitLimit, i.open.cutSlowest)
	i.uploads.MakeRoom(i.open.waitLimit, i.open.cutSlowest)
	return i
}

// newHealthCheck checks storage and tokens only if mailings are accepted.
func newHealthCheck(p Params) *healthCheck {
	hc := &healthCheck{confirm: shared(confirming(p.Store)), statuses: shared(p.Store.ProcessStatuses), gate: shared(p.Store.Gate), hasRabbitMQ: p.HasRabbitMQ}
	if p.HasRabbitMQ {
		hc.storage = &storageCheck{ping: p.Bucket.Ping}
		hc.tokens = p.Tokens.Available
	}
	return hc
}

// routeMailings registers the routes under both prefixes: /mailings for existing clients, /v1
// like all other routes. Without RabbitMQ, mailings cannot be started, but existing ones can be
// read and stopped.
func (a *API) routeMailings(r *gin.Engine, p Params) {
	for _, prefix := range []string{"", "/v1"} {
		read := r.Group(prefix+"/mailings", a.answer(a.authenticate), a.answer(scope(apikey.MailingsRead)))
		read.GET("", a.answer(a.listMailings))
		read.GET("/:id", a.answer(a.showMailing))
		read.GET("/:id/entries", a.answer(a.listEntries))
		read.GET("/:id/rows", a.answer(a.listRows))
		read.GET("/:id/verdicts", a.answer(a.downloadVerdicts))

		write := r.Group(prefix+"/mailings", a.answer(a.authenticate), a.answer(scope(apikey.MailingsWrite)))
		write.POST("/:id/pause", a.controlMailing(a.store.PauseMailing))
		write.POST("/:id/cancel", a.controlMailing(a.store.CancelMailing))

		start := write.Group("", a.answer(needsRabbitMQ(p.HasRabbitMQ)))
		start.POST("", a.answer(a.sendMailing))
		start.PATCH("/:id", a.answer(a.bodies.limit), a.answer(a.moveMailing))
		start.POST("/:id/start", a.controlMailing(a.store.StartMailing))
		start.POST("/:id/resume", a.controlMailing(a.store.ResumeMailing))
		start.POST("/:id/retry-failed", a.controlMailing(a.store.RetryFailedEntries))
	}
}
