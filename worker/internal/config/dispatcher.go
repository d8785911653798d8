package config

import (
	"cmp"
	"time"

	"email-gateway/shared/blob"
	"email-gateway/shared/environment"
)

// Dispatcher is the environment of the dispatcher.
type Dispatcher struct {
	Process
	Recipients
	Recovery
	Retention
	Reputation

	// Addr is the address that serves /livez, /readyz and /metrics.
	Addr string `env:"DISPATCHER_ADDR" envDefault:"127.0.0.1:9091"`
	// ListenURL is the Postgres URL for LISTEN, which needs a session of its own. Required if
	// DATABASE_POOLED is true: it must then name Postgres itself, not PgBouncer. Not set, it is
	// DatabaseURL.
	ListenURL string `env:"DATABASE_LISTEN_URL"`
	// PollInterval is how long a new email waits at most if its notification was lost. Rows that
	// were committed more than 2 s after their id was generated wait up to 30 s.
	PollInterval time.Duration `env:"OUTBOX_POLL_INTERVAL" envDefault:"250ms"`
	// RescueAfter is the maximum time until an email whose task was lost is on its queue again.
	RescueAfter time.Duration `env:"RESCUE_AFTER" envDefault:"10s"`

	// StorageURL is the location where the api stores uploaded files. Those under mailings/ and files/
	// that no row names are deleted after an hour.
	StorageURL string `env:"STORAGE_URL" envDefault:"file:///var/lib/email-gateway"`
	// RecoveryInterval is how often the dispatcher looks for mailings whose expander died.
	RecoveryInterval time.Duration `env:"MAILING_RECOVERY_INTERVAL" envDefault:"5m"`
}

// ReadDispatcher reads "NAME=value" lines, as os.Environ returns them.
func ReadDispatcher(environ []string) (Dispatcher, error) {
	var d Dispatcher
	f := environment.Read(environ, &d)
	f.RefusePublicSecrets(environ)
	d.Process.check(&f)
	d.Recovery.check(&f)
	d.Retention.check(&f)
	if d.RabbitMQURL != "" {
		d.checkRecipients(&f)
	}
	f.Must(d.RescueAfter >= time.Second && d.RescueAfter <= time.Hour, "RESCUE_AFTER", "must be 1s to 1h")
	if err := blob.CheckURL(d.StorageURL); err != nil {
		f.Must(false, "STORAGE_URL", err.Error())
	}
	f.Must(d.RecoveryInterval >= time.Second && d.RecoveryInterval <= time.Hour, "MAILING_RECOVERY_INTERVAL", "must be 1s to 1h")
	f.Address("DISPATCHER_ADDR", d.Addr)
	f.URL("DATABASE_LISTEN_URL", d.ListenURL, "postgres", "postgresql")
	f.Must(d.PollInterval >= 10*time.Millisecond && d.PollInterval <= time.Minute, "OUTBOX_POLL_INTERVAL", "must be 10ms to 1m")
	f.Must(!d.Pooled || d.ListenURL != "", "DATABASE_LISTEN_URL", "must be set where DATABASE_POOLED is true, and name Postgres itself: a pooler loses LISTEN")
	d.ListenURL = cmp.Or(d.ListenURL, d.DatabaseURL)
	return d, f.Err()
}
