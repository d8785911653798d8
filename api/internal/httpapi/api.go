// Package httpapi is the gateway's HTTP interface: it turns requests into rows and rows into
// responses. The api's main function serves it; openapi.yaml describes it, and a test compares
// the two.
//
// A request passes these middlewares in order: startRequest (request id), trace (span), observe (log
// and metrics), rescue (panics), authenticate (key, rate limit, company), scope, handler. A
// handler returns an error; problem.go, and the problem files of single routes, map it to a
// status.
package httpapi

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/api/internal/access"
	"email-gateway/api/internal/apikey"
	"email-gateway/api/internal/sns"
	"email-gateway/api/internal/spool"
	"email-gateway/api/internal/strictjson"
	"email-gateway/shared/clientip"
	"email-gateway/shared/draft"
	"email-gateway/shared/email"
	"email-gateway/shared/keyring"
	"email-gateway/shared/rules"
	"email-gateway/shared/sesevent"
	"email-gateway/shared/store"
	"email-gateway/shared/store/file"
	"email-gateway/shared/telemetry"
	"email-gateway/shared/unsubscribe"
)

// Store is the part of *store.Store that requests use.
type Store interface {
	access.Finder
	MailingStore
	sesevent.Store
	DeadLetterStore
	FindAnswer(ctx context.Context, company uuid.UUID, route, key string) (store.StoredAnswer, error)
	Exists(ctx context.Context, id uuid.UUID) (bool, error)
	Confirm(ctx context.Context) error
	RecipientMatches(ctx context.Context, company, recipient uuid.UUID, address string) (bool, error)
	FindEmail(ctx context.Context, company, id uuid.UUID) (store.Email, error)
	Timeline(ctx context.Context, id uuid.UUID) ([]store.TimelineEvent, error)
	ListEmails(ctx context.Context, company uuid.UUID, f store.EmailFilter) (store.EmailPage, error)
	AdvanceAll(ctx context.Context, company uuid.UUID, ts []store.Transition) ([]store.Advanced, error)
	Reschedule(ctx context.Context, m store.Move) (store.Advanced, error)
	AggregateEmails(ctx context.Context, company uuid.UUID, aggregateType, aggregateID string) ([]store.AggregateEmail, error)
	AcceptBatch(ctx context.Context, b store.NewBatch) (store.BatchOutcome, error)
	AcceptRecipients(ctx context.Context, r store.NewRecipients) error
	FindRecipient(ctx context.Context, company, recipient uuid.UUID) (store.KnownRecipient, error)
	DeleteRecipient(ctx context.Context, company, recipient uuid.UUID) error
	Suppress(ctx context.Context, company uuid.UUID, s store.Suppression) error
	AddSuppression(ctx context.Context, company uuid.UUID, s store.Suppression) error
	Unsuppress(ctx context.Context, company uuid.UUID, address string, reason store.SuppressionReason) error
	Suppressions(ctx context.Context, company uuid.UUID, f store.SuppressionFilter) ([]store.Suppression, error)
	ProcessStatuses(ctx context.Context) ([]store.ProcessStatus, error)
	Gate(ctx context.Context) (store.Gate, error)
	AddFile(ctx context.Context, f file.File) (file.File, error)
}

// Accepter commits new emails. *store.Accepter is one.
type Accepter interface {
	Accept(ctx context.Context, e store.NewEmail) error
}

// Params are the dependencies of an API. All are required except HashKey, Tracer and SpoolDir.
type Params struct {
	Log      *slog.Logger
	Store    Store
	Accepter Accepter
	// Feed is the feed of events; Polls lets requests wait for it. nil Polls: no request waits.
	Feed  EventFeed
	Polls *EventPolls
	// Templates are the stored templates.
	Templates TemplateStore
	// Usage counts what companies use.
	Usage UsageStore
	// Files are the stored files, whose contents are in Bucket. AttachmentsMax limits the attachments of one email
	// together (bytes); 0 = the default.
	Files          FileStore
	AttachmentsMax int64
	// Wake notifies the dispatchers asynchronously that these lanes have work.
	Wake     func(lanes ...store.Lanes)
	Registry *prometheus.Registry
	// Tracer creates a span for each request; the zero value creates none.
	Tracer telemetry.Tracer
	// Ring encrypts CPFs and CNPJs, HashKey keys their hashes.
	Ring    keyring.Ring
	HashKey []byte
	// SpoolDir is the directory for large bodies while they are received; "" = the system's
	// temporary directory.
	SpoolDir string
	// EmailTTL is the time after acceptance within which an email must reach the provider.
	EmailTTL time.Duration
	// MaxAttempts is how many tries an email has; 0 = the default.
	MaxAttempts int
	// HasRabbitMQ is false if the installation has no RabbitMQ. Mailings are then rejected, and
	// Tokens are not needed.
	HasRabbitMQ bool
	Bucket      Bucket
	Tokens      Tokens
	// PublicURL is the address at which recipients reach this api; UnsubscribeKeys encrypt the
	// links that begin with it.
	PublicURL       string
	UnsubscribeKeys unsubscribe.Keys
	// Events verifies messages of SNS; nil = SES events are not accepted.
	Events *sns.Verifier
	// Proxies are the proxies whose X-Forwarded-For is trusted.
	Proxies clientip.Proxies
	// Webhooks stores webhook endpoints. WebhookAllowPrivate permits http:// and private addresses.
	Webhooks            WebhookStore
	WebhookAllowPrivate bool
	// OpenAPI is the document served as /openapi.yaml.
	OpenAPI string
}

// API handles requests.
type API struct {
	log             *slog.Logger
	store           fairStore
	accepter        Accepter
	events          EventFeed
	polls           *EventPolls
	usage           UsageStore
	wake            func(lanes ...store.Lanes)
	directory       *access.Directory
	limiter         *access.Limiter
	proxies         clientip.Proxies
	guard           *clientip.Guard // limits attempts with wrong keys
	bodies          *bodies
	batchBodies     *bodies
	batches         *batchService
	rules           *rules.Rules
	composer        *composer
	recipients      *recipientReader
	suppressions    *strictjson.Reader[suppressRequest]
	reschedules     *strictjson.Reader[rescheduleRequest]
	discards        *strictjson.Reader[discardRequest]
	replays         *strictjson.Reader[replayRequest]
	mailings        *mailingService
	templates       *templateService
	files           *fileService
	unsubscribeKeys unsubscribe.Keys
	ttl             time.Duration
	maxAttempts     int
	hasRabbitMQ     bool
	health          *healthCheck
	measure         *measure
	tracer          telemetry.Tracer
	router          *gin.Engine
	literals        map[string]string // methods of the paths without a parameter
}

// New creates an API. It fails on a mistake in this package or with a second API on the same registry.
func New(p Params) (*API, error) {
	fair := newFairStore(p.Store)
	p.Store = fair
	measure, err := newMeasure(p.Registry)
	if err != nil {
		return nil, err
	}
	checks, err := newRules()
	if err != nil {
		return nil, fmt.Errorf("prepare rules: %w", err)
	}
	reader, err := strictjson.NewReader[draft.Email]()
	if err != nil {
		return nil, fmt.Errorf("prepare send requests: %w", err)
	}
	suppressions, err := strictjson.NewReader[suppressRequest]()
	if err != nil {
		return nil, fmt.Errorf("prepare suppressions: %w", err)
	}
	reschedules, err := strictjson.NewReader[rescheduleRequest]()
	if err != nil {
		return nil, fmt.Errorf("prepare reschedules: %w", err)
	}
	discards, err := strictjson.NewReader[discardRequest]()
	if err != nil {
		return nil, fmt.Errorf("prepare discards: %w", err)
	}
	replays, err := strictjson.NewReader[replayRequest]()
	if err != nil {
		return nil, fmt.Errorf("prepare replays: %w", err)
	}
	recipients, err := newRecipientReader(checks, taxIDs{ring: p.Ring, hashKey: p.HashKey})
	if err != nil {
		return nil, err
	}
	disk, err := spool.Open(p.SpoolDir)
	if err != nil {
		return nil, err
	}
	checker, turns := newTurns(runtime.GOMAXPROCS(0))
	templates, err := newTemplateService(p.Templates, fair, turns)
	if err != nil {
		return nil, err
	}
	limits := tenantBodies.forBodies(p.AttachmentsMax)
	requests := &bodies{memory: newBodyMemory(limits), rendered: newBodyMemory(renderLimits), spool: disk, pace: minPace, most: maxBody, tooLarge: bodyTooLarge}
	files := newFileService(p, fair, requests)
	a := &API{
		log:       p.Log,
		store:     fair,
		accepter:  p.Accepter,
		events:    p.Feed,
		polls:     p.Polls,
		usage:     p.Usage,
		wake:      p.Wake,
		directory: access.NewDirectory(p.Store),
		limiter:   access.NewLimiter(),
		proxies:   p.Proxies,
		guard:     clientip.NewGuard(),
		bodies:    requests,
		files:     files,
		batchBodies: &bodies{
			memory: newBodyMemory(batchBodyLimits), rendered: newBodyMemory(batchRenderLimits), spool: disk, pace: minPace,
			most: maxBatchBody, tooLarge: batchTooLarge,
		},
		batches: newBatchService(runtime.GOMAXPROCS(0)),
		rules:   checks,
		composer: &composer{
			rules: checks, reader: reader, recipients: p.Store, html: checker, turns: turns, library: templates.library, files: files,
			taxIDs: taxIDs{ring: p.Ring, hashKey: p.HashKey}, ttl: p.EmailTTL,
		},
		recipients:      recipients,
		templates:       templates,
		suppressions:    suppressions,
		reschedules:     reschedules,
		discards:        discards,
		replays:         replays,
		hasRabbitMQ:     p.HasRabbitMQ,
		ttl:             p.EmailTTL,
		maxAttempts:     cmp.Or(p.MaxAttempts, email.MaxAttempts),
		mailings:        newMailingService(p),
		unsubscribeKeys: p.UnsubscribeKeys,
		health:          newHealthCheck(p),
		measure:         measure,
		tracer:          p.Tracer,
	}
	if err := p.Registry.Register(dependencies{telemetry.NewDependencies(), a.health}); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	events, err := newSESEvents(p)
	if err != nil {
		return nil, err
	}
	hooks, err := newWebhookService(p, fair, checks)
	if err != nil {
		return nil, err
	}
	a.router = a.routes(p, events, hooks)
	return a, nil
}

// ServeHTTP handles one request.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.router.ServeHTTP(w, r) }

// Routes lists the routes, for the test that compares them with openapi.yaml.
func (a *API) Routes() gin.RoutesInfo { return a.router.Routes() }

func (a *API) routes(p Params, events *sesEvents, hooks *webhookService) *gin.Engine {
	gin.SetMode(gin.ReleaseMode) // the other modes print to standard output
	r := gin.New()
	r.RedirectTrailingSlash = false
	r.HandleMethodNotAllowed = true
	r.Use(a.startRequest, a.trace, a.observe, a.rescue, a.refuseMethod)
	r.NoRoute(a.answer(func(*gin.Context) error { return noSuchRoute }))
	r.NoMethod(a.answer(func(c *gin.Context) error {
		// gin adds the methods of parameterized paths that also match this one.
		if allowed := a.literals[c.Request.URL.Path]; allowed != "" {
			c.Header("Allow", allowed)
		}
		return wrongMethod(c.Request.Method, c.Writer.Header().Get("Allow"))
	}))

	r.GET("/livez", showLive)
	r.GET("/readyz", a.showReady)
	r.GET("/health", a.showHealth)
	r.GET("/openapi.yaml", func(c *gin.Context) { c.Data(http.StatusOK, "application/yaml", []byte(p.OpenAPI)) })

	send := r.Group("/v1", a.answer(a.authenticate), a.answer(scope(apikey.EmailsSend)))
	send.POST("/email/send", a.answer(a.files.sends.limit), a.answer(a.sendEmail))
	send.POST("/email/batch", a.answer(a.batchBodies.limit), a.answer(a.sendBatch))
	send.POST("/email/:id/cancel", a.answer(a.cancelEmail))
	send.POST("/email/:id/retry", a.answer(a.retryEmail))
	send.PATCH("/email/:id", a.answer(a.bodies.limit), a.answer(a.rescheduleEmail))
	send.POST("/aggregates/:type/:id/cancel", a.answer(a.cancelAggregate))

	read := r.Group("/v1", a.answer(a.authenticate), a.answer(scope(apikey.EmailsRead)))
	read.GET("/email/:id", a.answer(a.showEmail))
	read.GET("/emails", a.answer(a.listEmails))
	read.GET("/events", a.answer(a.listEvents))
	read.GET("/usage", a.answer(a.showUsage))

	people := r.Group("/v1/recipients", a.answer(a.authenticate), a.answer(scope(apikey.RecipientsWrite)))
	people.POST("", a.answer(needsRabbitMQ(p.HasRabbitMQ)), a.answer(a.bodies.limit), a.answer(a.addRecipients))
	people.GET("/:id", a.answer(a.showRecipient))
	people.DELETE("/:id", a.answer(a.deleteRecipient))

	suppress := r.Group("/v1/suppressions", a.answer(a.authenticate), a.answer(scope(apikey.SuppressionsWrite)))
	suppress.GET("", a.answer(a.listSuppressions))
	suppress.POST("", a.answer(a.bodies.limit), a.answer(a.addSuppression))
	suppress.DELETE("", a.answer(a.removeSuppression))

	letters := r.Group("/v1/dead-letters", a.answer(a.authenticate), a.answer(scope(apikey.DeadLettersWrite)))
	letters.GET("", a.answer(a.listDeadLetters))
	letters.GET("/:id", a.answer(a.showDeadLetter))
	letters.POST("/:id/retry", a.answer(a.retryDeadLetter))
	letters.POST("/:id/discard", a.answer(a.bodies.limit), a.answer(a.discardDeadLetter))
	letters.POST("/retry", a.answer(a.bodies.limit), a.answer(a.retryDeadLetters))
	letters.POST("/discard", a.answer(a.bodies.limit), a.answer(a.discardDeadLetters))

	replays := r.Group(replayPath, a.answer(a.authenticate), a.answer(scope(apikey.DeadLettersWrite)))
	replays.GET("/:id", a.answer(a.showReplay))

	r.GET(unsubscribePath, a.answer(a.askToUnsubscribe))
	r.POST(unsubscribePath, a.answer(a.unsubscribe))

	notifications := &bodies{memory: newBodyMemory(anonymousBodies), pace: minPace, most: maxNotification, tooLarge: notificationTooLarge}
	r.POST("/v1/ses/events", a.answer(notifications.limit), a.answer(events.receive))
	a.routeMailings(r, p)
	a.routeTemplates(r)
	a.routeFiles(r)
	a.routeWebhooks(r, hooks)
	a.rememberLiterals(r.Routes())
	a.measure.expect(r.Routes())
	return r
}

// answer makes a handler of a function that may return an error.
func (a *API) answer(step func(*gin.Context) error) gin.HandlerFunc {
	return func(c *gin.Context) {
		if err := step(c); err != nil {
			a.fail(c, err)
		}
	}
}
