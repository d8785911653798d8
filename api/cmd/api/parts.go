package main

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/api"
	"email-gateway/api/internal/config"
	"email-gateway/api/internal/httpapi"
	"email-gateway/api/internal/httpapi/events"
	"email-gateway/api/internal/mailing"
	"email-gateway/api/internal/sns"
	"email-gateway/api/internal/waker"
	"email-gateway/shared/service"
	"email-gateway/shared/standardwebhook"
	"email-gateway/shared/store"
	"email-gateway/shared/store/event"
	"email-gateway/shared/store/file"
	"email-gateway/shared/store/outbox"
	"email-gateway/shared/store/template"
	"email-gateway/shared/store/usage"
	"email-gateway/shared/store/webhook"
	"email-gateway/shared/telemetry"
)

// program has the resources of the parts.
type program struct {
	config   config.Config
	log      *slog.Logger
	registry *prometheus.Registry
	traces   *telemetry.Tracing
	db       *store.Store
	accepter *outbox.Accepter
	storage  storage // of mailings' files and attachments
}

// parts lists the program's parts in their start order. They stop in reverse order: the listeners first, because requests need
// the other parts.
func (p program) parts() ([]service.Named, error) {
	c := p.config
	wakes := waker.New(p.log, p.db.WakeLanes)
	parts := []service.Named{
		{Name: "traces", Service: p.traces},
		{Name: "clock", Service: p.db.NewClock(p.log)},
		{Name: "waker", Service: wakes},
		{Name: "quotas", Service: quotaDefaults(p.log, c, p.db)},
		{Name: "storage", Service: p.storage.mark()},
	}
	params := p.params()
	params.Wake = wakes.Wake
	if params.HasRabbitMQ {
		tokens := mailing.NewTokens(p.log)
		params.Tokens = tokens
		parts = append(parts, service.Named{Name: "tokens", Service: tokens})
	}
	polls := events.NewPolls(p.log, params.Feed)
	params.Polls = polls
	handler, err := httpapi.New(params)
	if err != nil {
		return nil, err
	}
	metrics := http.NewServeMux()
	metrics.Handle("GET /metrics", telemetry.MetricsHandler(p.registry))
	drain := service.NewDrain(c.DrainDelay)
	return append(parts,
		service.Named{Name: "metrics", Service: service.NewHTTP(p.log.With("listener", "metrics"), c.MetricsAddr, metrics)},
		service.Named{Name: "http", Service: service.NewHTTP(p.log.With("listener", "api"), c.Addr, drain.Handler(handler))},
		service.Named{Name: "event polls", Service: polls}, // stops first: the listener waits for requests
		service.Named{Name: "drain", Service: drain}), nil
}

// params are the parameters of the handlers, without the parts of the program.
func (p program) params() httpapi.Params {
	c, db := p.config, p.db.DB()
	return httpapi.Params{
		Log: p.log, Registry: p.registry, Tracer: p.traces.Tracer(), OpenAPI: api.OpenAPI(),
		Store: p.db, Accepter: p.accepter, Templates: template.New(db), Files: file.New(db), Feed: event.New(db), Usage: usage.New(db), Webhooks: webhook.New(db),
		Bucket: p.storage, AttachmentsMax: c.AttachmentsMaxBytes, SpoolDir: c.SpoolDir,
		Ring: c.CPFCNPJKeys, HashKey: c.CPFCNPJHashKey, PublicURL: c.PublicURL, UnsubscribeKeys: c.UnsubscribeKeys,
		EmailTTL: c.EmailTTL, MaxAttempts: c.MaxAttempts, HasRabbitMQ: c.RabbitMQURL != "",
		Events: p.snsVerifier(), Proxies: c.TrustedProxies,
		WebhookPolicy: standardwebhook.Policy{AllowPrivate: c.WebhookAllowPrivate, Refused: c.WebhookRefusedNetworks},
	}
}

// snsVerifier returns the verifier of SES events; nil = they are not accepted.
func (p program) snsVerifier() *sns.Verifier {
	c := p.config
	if len(c.SESEventsTopics) == 0 {
		return nil
	}
	trusted := c.SESEventsTrustedURL.URL
	if trusted != nil {
		p.log.Warn("SES events signed by a simulator are trusted", "host", trusted.Host)
	}
	return sns.New(sns.Params{Topics: c.SESEventsTopics, Trusted: trusted, SHA256Only: c.SESEventsSHA256Only})
}

// quotaDefaults writes the installation's limits to the database once Postgres answers; all
// programs read them there. It runs only once, so that an api that is about to be replaced does
// not overwrite the limits of its successor.
func quotaDefaults(log *slog.Logger, settings config.Config, db *store.Store) service.Service {
	return service.NewLoop(service.LoopParams{
		Log: log, Interval: never, RunOnce: func(ctx context.Context) (more bool, err error) {
			return false, db.SetQuotaDefaults(ctx, settings.Limits())
		},
	})
}

// never is longer than any process runs.
const never = 100 * 365 * 24 * time.Hour
