package config

import (
	"cmp"
	"net"
	"net/url"
	"time"

	"email-gateway/shared/environment"
	"email-gateway/shared/unsubscribe"
)

// Mailings has the worker's variables for mailings. They are used only with RabbitMQ.
type Mailings struct {
	// PublicURL is the URL at which readers of mail reach the api; unsubscribe links begin with it. If ENVIRONMENT is
	// production it must be https and reachable from other machines, and is required if RABBITMQ_URL is set. Empty elsewhere:
	// http://127.0.0.1:8080.
	PublicURL string `env:"PUBLIC_URL"`
	// UnsubscribeKeys are the keys that encrypt unsubscribe links: base64 of at least 32 bytes, the
	// same for api and worker, comma-separated. The first one encrypts, all of them decrypt.
	// Required if RABBITMQ_URL is set.
	UnsubscribeKeys unsubscribe.Keys `env:"UNSUBSCRIBE_KEY"`
	// Lead is the maximum number of emails of one mailing that wait in the outbox; the rest waits in
	// the mailing, without a deadline.
	Lead int `env:"MAILING_LEAD" envDefault:"50000"`
	// MXResolver is the DNS server that is queried for the MX records of a mailing's domains:
	// host:port, or off for no check. Not set: the system's resolver. It must resolve public names:
	// as long as it has no NS records of com, every domain that it does not find counts as valid.
	MXResolver string `env:"MX_RESOLVER"`
}

func (m *Mailings) check(f *environment.Faults) {
	f.Must(m.PublicURL != "", "PUBLIC_URL", "is required where RABBITMQ_URL is set and ENVIRONMENT is production: unsubscribe links begin with it")
	f.Must(!m.UnsubscribeKeys.Empty(), "UNSUBSCRIBE_KEY", "is required where RABBITMQ_URL is set: base64 of at least 32 bytes")
	f.Must(m.Lead >= 1 && m.Lead <= 10_000_000, "MAILING_LEAD", "must be 1 to 10000000")
	if m.MXResolver != "" && m.MXResolver != "off" {
		_, _, err := net.SplitHostPort(m.MXResolver)
		f.Must(err == nil, "MX_RESOLVER", `must be host:port, "off" or empty`)
	}
}

// localURL is the PUBLIC_URL of a gateway on one machine.
const localURL = "http://127.0.0.1:8080"

// setPublicURL sets the default of PUBLIC_URL. Production has none: links to this machine in sent mail cannot be corrected.
func (m *Mailings) setPublicURL(f *environment.Faults, production bool) {
	if !production {
		m.PublicURL = cmp.Or(m.PublicURL, localURL)
	}
	if m.PublicURL == "" {
		return
	}
	f.HTTPURL("PUBLIC_URL", m.PublicURL)
	u, err := url.Parse(m.PublicURL)
	f.Must(!production || err == nil && u.Scheme == "https" && !environment.IsLocal(u.Hostname()), "PUBLIC_URL",
		"must be an https:// URL that readers of mail reach where ENVIRONMENT is production: unsubscribe links begin with it")
}

// Recovery configures when a mailing's expander counts as dead.
type Recovery struct {
	// StaleAfter is how long a mailing's job may go without a heartbeat before it counts as dead.
	// It sends one every 5 s.
	StaleAfter time.Duration `env:"MAILING_STALE_AFTER" envDefault:"30s"`
}

func (r *Recovery) check(f *environment.Faults) {
	f.Must(r.StaleAfter >= 10*time.Second && r.StaleAfter <= time.Hour, "MAILING_STALE_AFTER", "must be 10s to 1h")
}
