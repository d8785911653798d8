package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"email-gateway/api"
	"email-gateway/api/internal/config"
	"email-gateway/api/internal/httpapi"
	"email-gateway/api/internal/httpapi/events"
	"email-gateway/api/internal/mailing"
	"email-gateway/api/internal/sns"
	"email-gateway/api/internal/waker"
	"email-gateway/shared/blob"
	"email-gateway/shared/service"
	"email-gateway/shared/store"
	"email-gateway/shared/store/event"
	"email-gateway/shared/store/file"
	"email-gateway/shared/store/installation"
	"email-gateway/shared/store/template"
	"email-gateway/shared/store/usage"
	"email-gateway/shared/store/webhook"
	"email-gateway/shared/telemetry"
)

// serve runs until ctx ends. The listeners stop first, because requests need the other parts.
func serve(
	ctx context.Context, log *slog.Logger, settings config.Config, traces *telemetry.Tracing,
	db *store.Store, accepter *store.Accepter,
) (err error) {
	registry := telemetry.NewRegistry()
	metrics := http.NewServeMux()
	metrics.Handle("GET /metrics", telemetry.MetricsHandler(registry))
	wakes := waker.New(log, db.WakeLanes)
	feed := event.New(db.DB())
	polls := events.NewPolls(log, feed)
	params := httpapi.Params{
		Log: log, Store: db, Accepter: accepter, Templates: template.New(db.DB()), Files: file.New(db.DB()), AttachmentsMax: settings.AttachmentsMaxBytes, Feed: feed, Polls: polls, Wake: wakes.Wake, Registry: registry, Tracer: traces.Tracer(),
		Ring: settings.CPFCNPJKeys, HashKey: settings.CPFCNPJHashKey, EmailTTL: settings.EmailTTL, MaxAttempts: settings.MaxAttempts,
		SpoolDir: settings.SpoolDir,
		Proxies:  settings.TrustedProxies, HasRabbitMQ: settings.RabbitMQURL != "", OpenAPI: api.OpenAPI(),
		PublicURL: settings.PublicURL, UnsubscribeKeys: settings.UnsubscribeKeys,
		Usage: usage.New(db.DB()), Webhooks: webhook.New(db.DB()), WebhookAllowPrivate: settings.WebhookAllowPrivate,
	}
	if len(settings.SESEventsTopics) > 0 {
		trusted := settings.SESEventsTrustedURL.URL
		if trusted != nil {
			log.Warn("SES events signed by a simulator are trusted", "host", trusted.Host)
		}
		params.Events = sns.New(sns.Params{Topics: settings.SESEventsTopics, Trusted: trusted, SHA256Only: settings.SESEventsSHA256Only})
	}
	parts := []service.Named{{Name: "traces", Service: traces}, {Name: "clock", Service: db.NewClock(log)}, {Name: "waker", Service: wakes}, {Name: "quotas", Service: quotaDefaults(log, settings, db)}}
	owner := installation.New(db.DB())
	bucket, err := blob.Open(ctx, settings.StorageURL, blob.Options{Owner: owner, Claim: owner, Log: log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bucket.Close()) }()
	params.Bucket = bucket
	parts = append(parts, service.Named{Name: "storage", Service: markStorage(bucket)})
	if params.HasRabbitMQ {
		tokens := mailing.NewTokens(log)
		params.Tokens = tokens
		parts = append(parts, service.Named{Name: "tokens", Service: tokens})
	}
	parts = append(parts, service.Named{Name: "metrics", Service: service.NewHTTP(log.With("listener", "metrics"), settings.MetricsAddr, metrics)})
	handler, err := httpapi.New(params)
	if err != nil {
		return err
	}
	drain := service.NewDrain(settings.DrainDelay)
	parts = append(parts,
		service.Named{Name: "http", Service: service.NewHTTP(log.With("listener", "api"), settings.Addr, drain.Handler(handler))},
		service.Named{Name: "event polls", Service: polls}, // stops first: the listener waits for requests
		service.Named{Name: "drain", Service: drain})
	return service.Run(ctx, log, grace+settings.DrainDelay, parts...)
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

// markStorage marks the storage as the installation's when the api starts, so that the other programs find the marker before
// the first upload. Later each health check and each upload checks the marker. The bucket logs what is wrong, and /health shows
// it, so the loop's own lines are left out.
func markStorage(bucket *blob.Bucket) service.Service {
	return service.NewLoop(service.LoopParams{
		Log: slog.New(slog.DiscardHandler), Interval: never, ErrorDelay: markDelay, RunOnce: func(ctx context.Context) (more bool, err error) {
			ctx, cancel := context.WithTimeout(ctx, markTime)
			defer cancel()
			return false, bucket.Ping(ctx)
		},
	})
}

const (
	markTime  = 30 * time.Second // for one attempt
	markDelay = 10 * time.Second // between attempts
)

// never is longer than any process runs.
const never = 100 * 365 * 24 * time.Hour
