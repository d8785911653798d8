// Package config parses the api's environment. Only the main function uses it; other packages
// get the values that they need.
//
// All errors are reported together, each with the name of its variable. No message contains
// a URL or a key.
package config

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"email-gateway/api/internal/sns"
	"email-gateway/shared/blob"
	"email-gateway/shared/clientip"
	"email-gateway/shared/email"
	"email-gateway/shared/environment"
	"email-gateway/shared/keyring"
	"email-gateway/shared/telemetry"
	"email-gateway/shared/unsubscribe"
)

// Config holds the api's settings.
type Config struct {
	// Addr is the address on which the api serves requests.
	Addr string `env:"API_ADDR" envDefault:"127.0.0.1:8080"`
	// MetricsAddr is the only address that serves /metrics. It has no password: keep it on a
	// network that only Prometheus reaches. Two apis on one machine need an address each.
	MetricsAddr string `env:"METRICS_ADDR" envDefault:"127.0.0.1:9094"`
	// TrustedProxies are the comma-separated networks of proxies whose X-Forwarded-For is trusted:
	// the client is the right-most address in it that is not in these networks. Without any, the
	// client is the peer of the connection.
	TrustedProxies clientip.Proxies `env:"TRUSTED_PROXIES"`

	// DrainDelay is how long a stopping program continues to serve while /readyz answers 503, 0s
	// to 1m: longer than the load balancer needs to notice. 0s if there is none.
	DrainDelay time.Duration `env:"DRAIN_DELAY" envDefault:"0s"`

	// DatabaseURL is the Postgres URL: postgres://, version 15 or newer. Separate several hosts by
	// commas and add target_session_attrs=read-write to connect to the primary.
	DatabaseURL string `env:"DATABASE_URL,required,notEmpty"`
	// Pooled must be true if DATABASE_URL leads to PgBouncer in transaction mode: the program then
	// prepares no statements and sends no session settings. `migrate roles` stores those on the roles.
	Pooled bool `env:"DATABASE_POOLED" envDefault:"false"`
	// RabbitMQURL tells the api whether RabbitMQ is used; the api does not connect to it. Empty
	// means that it is not used: /health reports it as disabled, and bulk routes answer 503.
	RabbitMQURL string `env:"RABBITMQ_URL"`

	// StorageURL is the location of the files of mailings and of attachments, which are encrypted:
	// file:///an/absolute/path of a disk that api, dispatcher and worker share, or s3://bucket?region=…
	StorageURL string `env:"STORAGE_URL" envDefault:"file:///var/lib/email-gateway"`
	// AttachmentsMaxBytes is the maximum size of an email's attachments together, before base64: 1 to
	// 27262976 bytes (26 MiB), which with html and text fits SES's limit of 40 MB after encoding.
	AttachmentsMaxBytes int64 `env:"ATTACHMENTS_MAX_BYTES" envDefault:"10485760"`
	// SpoolDir is a directory on a disk for request bodies over 1 MiB, and for attachments, while they arrive: encrypted,
	// without a directory entry, deleted when the process exits. Not set: the system's directory
	// for temporary files. Several apis may share it, and it may contain other files.
	SpoolDir string `env:"SPOOL_DIR"`
	// PublicURL is the URL at which readers of mail reach the api; unsubscribe links begin with it.
	// Not set: derived from Addr, which is reachable from the same machine only.
	PublicURL string `env:"PUBLIC_URL"`
	// UnsubscribeKeys are the keys that encrypt unsubscribe links: base64 of at least 32 bytes, the
	// same for api and worker, comma-separated. The first one encrypts, all of them decrypt.
	// Required if RABBITMQ_URL is set.
	UnsubscribeKeys unsubscribe.Keys `env:"UNSUBSCRIBE_KEY"`

	// SESEventsTopics are the comma-separated ARNs of the SNS topics whose SES events are accepted
	// at /v1/ses/events. Without any, none are accepted.
	SESEventsTopics []string `env:"SES_EVENTS_TOPICS"`
	// SESEventsSHA256Only rejects SNS's signature version 1, which uses SHA-1.
	SESEventsSHA256Only bool `env:"SES_EVENTS_SHA256_ONLY" envDefault:"false"`
	// SESEventsTrustedURL is the URL of a simulator of SNS. A server at this URL can forge events,
	// so never set it together with real topics; it is refused if ENVIRONMENT is production.
	SESEventsTrustedURL TrustedURL `env:"SES_EVENTS_TRUSTED_URL"`

	// EmailTTL is the deadline of an email, from its acceptance or its sendAt. An email that was
	// not sent by then is EXPIRED.
	EmailTTL time.Duration `env:"EMAIL_TTL" envDefault:"24h"`
	// MaxAttempts is the maximum number of attempts per email; an attempt that the provider refused
	// because of a quota or its rate limit is not counted.
	MaxAttempts int `env:"EMAIL_MAX_ATTEMPTS" envDefault:"5"`

	// CPFCNPJKeys are the keys that encrypt CPFs and CNPJs: id:base64-of-32-bytes[,id2:…]. The
	// first one encrypts, all of them decrypt.
	CPFCNPJKeys keyring.Ring `env:"CPF_CNPJ_KEYS,required,notEmpty"`
	// CPFCNPJHashKey is the HMAC key of stored hashes of CPFs and CNPJs, without which they cannot
	// be reversed with a list of all CPFs: base64 of at least 32 bytes. After a change, existing
	// recipients are no longer recognized by their CPF or CNPJ. Required if ENVIRONMENT is production.
	CPFCNPJHashKey HashKey `env:"CPF_CNPJ_HASH_KEY"`

	// WebhookAllowPrivate permits webhook endpoints with http:// and with addresses that are not public:
	// for tests and closed networks, where every tenant may reach every address that the worker
	// reaches. Set the same for api and worker.
	WebhookAllowPrivate bool `env:"WEBHOOK_ALLOW_PRIVATE" envDefault:"false"`
	// WebhookRefusedNetworks are comma-separated networks, such as 203.0.113.0/24,2001:db8:7::/48, that no
	// webhook endpoint may be in, also if WEBHOOK_ALLOW_PRIVATE is set: your own public addresses that
	// tenants must not reach through the worker. Private networks need an entry only with
	// WEBHOOK_ALLOW_PRIVATE. Set the same for api and worker.
	WebhookRefusedNetworks clientip.Networks `env:"WEBHOOK_REFUSED_NETWORKS"`

	// Quotas bound what each company may use; `gatewayctl company quota` sets others for one
	// company. 0 is unlimited. An api writes them into the database when it starts.
	Quotas

	// Environment is a field of every log line. The value production makes all programs
	// refuse keys and passwords that are published in this project's files.
	Environment string `env:"ENVIRONMENT" envDefault:"development"`
	// LogLevel is the minimum log level: debug, info, warn or error. Programs log to stdout. Requests and results of emails, which a
	// restore of the database needs, are logged at any level.
	LogLevel string `env:"LOG_LEVEL" envDefault:"info"`
	// TraceSettings say where spans are sent to.
	telemetry.TraceSettings
}

// HashKey is the key of an HMAC-SHA-256, in base64.
type HashKey []byte

// UnmarshalText decodes base64 of at least 32 bytes: a shorter key would weaken the hash.
func (k *HashKey) UnmarshalText(text []byte) error {
	key, err := base64.StdEncoding.DecodeString(string(text))
	if err != nil || len(key) < 32 {
		return errors.New("must be base64 of at least 32 bytes")
	}
	*k = key
	return nil
}

// TrustedURL is an http or https URL, or none.
type TrustedURL struct{ *url.URL }

// UnmarshalText parses the URL.
func (t *TrustedURL) UnmarshalText(text []byte) error {
	u, err := url.Parse(string(text))
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" {
		return errors.New("must be an http:// or https:// URL, without credentials and query")
	}
	t.URL = u
	return nil
}

// maxAttachments: base64 in lines makes 78 characters of 57 bytes, so these are 37.4 million of SES's 40 million bytes. html and
// text, of 512 KiB each, take 1.5 million more.
const maxAttachments = 26 << 20

// Read parses "NAME=value" lines. An empty variable counts as not set.
func Read(environ []string) (Config, error) {
	var c Config
	f := environment.Read(environ, &c)
	if c.PublicURL == "" {
		c.PublicURL = "http://" + reachable(c.Addr)
	}
	c.check(&f)
	f.RefusePublicSecrets(environ)
	if err := f.Err(); err != nil {
		return Config{}, err
	}
	return c, nil
}

// ReadAddr reads only API_ADDR.
func ReadAddr(environ []string) (string, error) {
	var c struct {
		Addr string `env:"API_ADDR" envDefault:"127.0.0.1:8080"`
	}
	err := environment.Read(environ, &c).Err()
	return c.Addr, err
}

// reachable returns a local address at which a listener on addr answers.
func reachable(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if ip := net.ParseIP(host); err == nil && (host == "" || ip != nil && ip.IsUnspecified()) {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return addr
}

func (c *Config) check(f *environment.Faults) {
	f.Address("API_ADDR", c.Addr)
	f.Address("METRICS_ADDR", c.MetricsAddr)
	f.Must(c.MetricsAddr != c.Addr || strings.HasSuffix(c.Addr, ":0"), "METRICS_ADDR", "must not be API_ADDR")
	f.DrainDelay(c.DrainDelay)
	f.URL("DATABASE_URL", c.DatabaseURL, "postgres", "postgresql")
	f.URL("RABBITMQ_URL", c.RabbitMQURL, "amqp", "amqps")
	f.HTTPURL("PUBLIC_URL", c.PublicURL)
	f.Must(c.AttachmentsMaxBytes >= 1 && c.AttachmentsMaxBytes <= maxAttachments, "ATTACHMENTS_MAX_BYTES", fmt.Sprintf("must be 1 to %d", maxAttachments))
	if err := blob.CheckURL(c.StorageURL); err != nil {
		f.Must(false, "STORAGE_URL", err.Error())
	}
	if c.RabbitMQURL != "" {
		f.Must(!c.UnsubscribeKeys.Empty(), "UNSUBSCRIBE_KEY", "is required where RABBITMQ_URL is set: base64 of at least 32 bytes")
	}
	f.Must(!environment.IsProduction(c.Environment) || len(c.CPFCNPJHashKey) > 0, "CPF_CNPJ_HASH_KEY",
		"is required where ENVIRONMENT is production: without it the hash of a CPF can be looked up in a list of all CPFs (openssl rand -base64 32)")
	f.Must(!environment.IsProduction(c.Environment) || c.SESEventsTrustedURL.URL == nil, "SES_EVENTS_TRUSTED_URL",
		"must not be set where ENVIRONMENT is production: the server at that URL can forge bounces and complaints")
	for _, topic := range c.SESEventsTopics {
		f.Must(sns.IsTopic(topic), "SES_EVENTS_TOPICS", "must be ARNs of SNS topics, with commas between them: arn:aws:sns:us-east-1:123456789012:name")
	}
	f.Must(email.IsTTL(c.EmailTTL), "EMAIL_TTL", email.TTLRange)
	f.Must(c.MaxAttempts == 0 || c.MaxAttempts >= 1 && c.MaxAttempts <= email.AttemptLimit, "EMAIL_MAX_ATTEMPTS", fmt.Sprintf("must be 1 to %d", email.AttemptLimit))
	c.Quotas.check(f)
	f.LogLevel("LOG_LEVEL", c.LogLevel)
	c.CheckTraces(f)
}
