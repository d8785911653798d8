// Package httpapi is the gateway's HTTP interface: it turns requests into rows and rows into
// responses. The api's main function serves it; openapi.yaml describes it, and a test compares
// the two.
//
// This package builds the router: routes.go lists the routes. The packages below it handle them, a
// package for each family of routes, which declares the few methods of the store that it calls:
//
//	sending          single emails and batches
//	emails           showing, listing, cancelling, retrying and rescheduling emails
//	events, usage    the feed of events; what a company used
//	deadletters      dead letters
//	recipients, suppressions, unsubscribepage
//	mailings         mailings from CSV files
//	templates, files what emails are made from
//	webhooks         webhook endpoints
//	sesevents        events of SES
//	health           /livez, /readyz and /health
//
// These share other packages: middleware has what runs before and after every handler, reqctx the state
// of a request, reqbody and query read requests, accept commits a request once, compose makes emails,
// taxid protects CPFs and CNPJs, problem has the error responses, response what other responses share,
// and slots limits the statements of a company.
package httpapi

import (
	"cmp"
	"log/slog"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/api/internal/httpapi/deadletters"
	"email-gateway/api/internal/httpapi/emails"
	"email-gateway/api/internal/httpapi/events"
	"email-gateway/api/internal/httpapi/files"
	"email-gateway/api/internal/httpapi/health"
	"email-gateway/api/internal/httpapi/mailings"
	"email-gateway/api/internal/httpapi/middleware"
	"email-gateway/api/internal/httpapi/recipients"
	"email-gateway/api/internal/httpapi/response"
	"email-gateway/api/internal/httpapi/sending"
	"email-gateway/api/internal/httpapi/sesevents"
	"email-gateway/api/internal/httpapi/suppressions"
	"email-gateway/api/internal/httpapi/templates"
	"email-gateway/api/internal/httpapi/unsubscribepage"
	"email-gateway/api/internal/httpapi/usage"
	"email-gateway/api/internal/httpapi/webhooks"
	"email-gateway/api/internal/sns"
	"email-gateway/shared/clientip"
	"email-gateway/shared/email"
	"email-gateway/shared/keyring"
	"email-gateway/shared/standardwebhook"
	"email-gateway/shared/store/lane"
	"email-gateway/shared/telemetry"
	"email-gateway/shared/unsubscribe"
)

// Params are the dependencies of an API. All are required except HashKey, Tracer and SpoolDir.
type Params struct {
	Log      *slog.Logger
	Store    Store
	Accepter sending.Accepter
	// Feed is the feed of events; Polls lets requests wait for it. nil Polls: no request waits.
	Feed  events.Feed
	Polls *events.Polls
	// Templates are the stored templates.
	Templates TemplateStore
	// Usage counts what companies use.
	Usage usage.Store
	// Files are the stored files, whose contents are in Bucket. AttachmentsMax limits the attachments of one email
	// together (bytes); 0 = the default.
	Files          FileStore
	AttachmentsMax int64
	// Wake notifies the dispatchers asynchronously that these lanes have work.
	Wake     func(lanes ...lane.Lanes)
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
	// IngestTime limits writing a mailing to Postgres; 0 = the default.
	IngestTime time.Duration
	// Events verifies messages of SNS; nil = SES events are not accepted.
	Events *sns.Verifier
	// Proxies are the proxies whose X-Forwarded-For is trusted.
	Proxies clientip.Proxies
	// Webhooks stores webhook endpoints. WebhookPolicy says which URLs they may have.
	Webhooks      webhooks.Store
	WebhookPolicy standardwebhook.Policy
	// OpenAPI is the document served as /openapi.yaml.
	OpenAPI string
}

// API handles requests.
type API struct{ router *gin.Engine }

// New returns an API. It fails on a mistake in this package or with a second API on the same registry.
func New(p Params) (*API, error) {
	h, err := newHandlers(p)
	if err != nil {
		return nil, err
	}
	return &API{router: h.routes(p)}, nil
}

// ServeHTTP handles one request.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.router.ServeHTTP(response.Writer{ResponseWriter: w}, r)
}

// Routes lists the routes, for the test that compares them with openapi.yaml.
func (a *API) Routes() gin.RoutesInfo { return a.router.Routes() }

// handlers are the handlers of all routes.
type handlers struct {
	*middleware.Middleware
	bodies       bodies
	sending      *sending.Handlers
	emails       *emails.Handlers
	events       *events.Handlers
	usage        *usage.Handlers
	deadLetters  *deadletters.Handlers
	recipients   *recipients.Handlers
	suppressions *suppressions.Handlers
	unsubscribe  *unsubscribepage.Handlers
	mailings     *mailings.Handlers
	templates    *templates.Handlers
	files        *files.Handlers
	webhooks     *webhooks.Handlers
	sesEvents    *sesevents.Handlers
	health       *health.Check
}

// newHandlers creates the handlers with what they share.
func newHandlers(p Params) (h *handlers, err error) {
	h = &handlers{}
	if h.bodies, err = newBodies(p); err != nil {
		return nil, err
	}
	s, err := newShared(p, h.bodies)
	if err != nil {
		return nil, err
	}
	h.Middleware, err = middleware.New(middleware.Params{
		Log: p.Log, Keys: s.store, Limiter: s.limiter, Registry: p.Registry, Proxies: p.Proxies, Tracer: p.Tracer,
	})
	if err != nil {
		return nil, err
	}
	h.sending, err = sending.New(sending.Params{
		Store: s.store, Accepter: p.Accepter, Accept: s.commits, Limiter: s.limiter, Rules: s.rules, HTML: s.html, Library: s.library, Files: s.attachments,
		TaxIDs: s.taxIDs, TTL: p.EmailTTL, Tracer: p.Tracer, Wake: p.Wake,
	})
	if err != nil {
		return nil, err
	}
	h.emails = emails.New(emails.Params{
		Store: s.store, Timeline: s.store.timelineOf, Attachments: s.files, Rules: s.rules, SendAt: s.sendAt,
		TTL: p.EmailTTL, MaxAttempts: cmp.Or(p.MaxAttempts, email.MaxAttempts), Wake: p.Wake,
	})
	h.events = events.New(p.Feed, p.Polls, s.store.Slots, s.rules, h.StillValid)
	h.usage = usage.New(p.Usage, s.store.Slots, s.rules)
	h.deadLetters, err = deadletters.New(deadletters.Params{
		Store: s.store, Emails: h.emails, Rules: s.rules, HasRabbitMQ: p.HasRabbitMQ, TTL: p.EmailTTL, Wake: p.Wake,
	})
	if err != nil {
		return nil, err
	}
	h.recipients, err = recipients.New(recipients.Params{
		Store: s.store, Accept: s.commits, Rules: s.rules, TaxIDs: s.taxIDs, Tracer: p.Tracer, Wake: p.Wake,
	})
	if err != nil {
		return nil, err
	}
	if h.suppressions, err = suppressions.New(s.store, s.rules); err != nil {
		return nil, err
	}
	h.unsubscribe = unsubscribepage.New(p.Log, s.store, p.UnsubscribeKeys)
	if h.mailings, err = newMailings(p, s, h.StillValid); err != nil {
		return nil, err
	}
	if h.templates, err = templates.New(s.templates, s.library, s.html, s.rules); err != nil {
		return nil, err
	}
	h.files = files.New(s.files, s.contents, s.rules)
	if h.health, err = newHealth(p, s.store); err != nil {
		return nil, err
	}
	if h.sesEvents, err = sesevents.New(p.Log, p.Events, s.store, p.Registry); err != nil {
		return nil, err
	}
	h.webhooks, err = webhooks.New(webhooks.Params{Store: p.Webhooks, Slots: s.store.Slots, Rules: s.rules, Ring: p.Ring, Policy: p.WebhookPolicy})
	return h, err
}

func newMailings(p Params, s *shared, stillValid func(*gin.Context) error) (*mailings.Handlers, error) {
	return mailings.New(mailings.Params{
		Log: p.Log, Store: s.store, AttachmentStore: p.Files, Slots: s.store.Slots, Accept: s.commits, StillValid: stillValid,
		Attachments: s.attachments, HTML: s.html, Library: s.library, Rules: s.rules, SendAt: s.sendAt, Ring: p.Ring, HashKey: p.HashKey,
		Bucket: p.Bucket, Tokens: p.Tokens, PublicURL: p.PublicURL, Links: p.UnsubscribeKeys, IngestTime: p.IngestTime, TTL: p.EmailTTL,
		Tracer: p.Tracer, Wake: p.Wake,
	})
}

func newHealth(p Params, s health.Store) (*health.Check, error) {
	params := health.Params{Log: p.Log, Store: s, HasRabbitMQ: p.HasRabbitMQ, PingStorage: p.Bucket.Ping}
	if p.HasRabbitMQ {
		params.AvailableTokens = p.Tokens.Available
	}
	check := health.New(params)
	return check, check.Register(p.Registry)
}
