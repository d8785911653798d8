package config

import (
	"time"

	"email-gateway/shared/clientip"
	"email-gateway/shared/email"
	"email-gateway/shared/environment"
	"email-gateway/shared/keyring"
)

// Webhooks configure the delivery of events to the companies' webhook endpoints.
type Webhooks struct {
	// CPFCNPJKeys are the keys of the api, which has encrypted attachments and the secrets of webhook endpoints
	// with them. Without any, the worker warns at its start and counts the webhook endpoints that it cannot serve, and emails
	// with attachments wait.
	CPFCNPJKeys keyring.Ring `env:"CPF_CNPJ_KEYS"`
	// AllowPrivate permits webhook endpoints with http:// and with addresses that are not public: for
	// tests and closed networks. Set the same for api and worker.
	AllowPrivate bool `env:"WEBHOOK_ALLOW_PRIVATE" envDefault:"false"`
	// RefusedNetworks are the comma-separated networks to which the worker makes no connection for a webhook endpoint,
	// also if WEBHOOK_ALLOW_PRIVATE is set. Set the same for api and worker.
	RefusedNetworks clientip.Networks `env:"WEBHOOK_REFUSED_NETWORKS"`
	// WebhookConcurrency is the maximum number of requests to webhook endpoints that one worker has in flight, 4 to
	// 1024. A company has a quarter of them, and endpoints that are slow or fail have half. Requests slower than 2 s have
	// places of their own, four times as many.
	WebhookConcurrency int `env:"WEBHOOK_CONCURRENCY" envDefault:"64"`
	// WebhookBackoff are the waits between the attempts of a failed webhook delivery; the last attempt follows the
	// last wait.
	WebhookBackoff email.Backoff `env:"WEBHOOK_BACKOFF" envDefault:"5s,5m,30m,2h,5h,10h,14h,20h,24h"`
	// ProbeInterval is how often a webhook endpoint that is down gets a request, besides those of the
	// schedule. Its open deliveries are due at once if it was failing for this long.
	ProbeInterval time.Duration `env:"WEBHOOK_PROBE_INTERVAL" envDefault:"5m"`
	// DisableAfter is how long a webhook endpoint may fail before it is disabled.
	DisableAfter time.Duration `env:"WEBHOOK_DISABLE_AFTER" envDefault:"120h"`
}

func (w *Webhooks) check(f *environment.Faults) {
	f.Must(w.WebhookConcurrency >= 4 && w.WebhookConcurrency <= 1024, "WEBHOOK_CONCURRENCY", "must be 4 to 1024")
	f.Must(w.ProbeInterval > 0, "WEBHOOK_PROBE_INTERVAL", "must be longer than 0s")
	var schedule time.Duration
	for _, wait := range w.WebhookBackoff {
		schedule += wait
	}
	f.Must(w.DisableAfter > schedule, "WEBHOOK_DISABLE_AFTER", "must be longer than the sum of WEBHOOK_BACKOFF: deliveries would never have their last attempt")
}
