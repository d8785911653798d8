// Package config reads the api's environment into one struct. The main function
// uses it; every other package is given the values it needs.
//
// All mistakes are reported together, each with the name of its variable, and no
// message repeats a URL or a key.
package config

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"email-gateway/api/internal/keyring"
	"email-gateway/api/internal/sns"
	"email-gateway/shared/blob"
	"email-gateway/shared/clientip"
	"email-gateway/shared/email"
	"email-gateway/shared/environment"
	"email-gateway/shared/telemetry"
	"email-gateway/shared/unsubscribe"
)

// Config is what the api is told by its environment.
type Config struct {
	// Addr is where requests are answered.
	Addr string `env:"API_ADDR" envDefault:"127.0.0.1:8080"`
	// MetricsAddr is where /metrics is answered, and nowhere else. It has no password: keep it
	// on a network that Prometheus alone reaches. Two apis on one machine need an address each.
	MetricsAddr string `env:"METRICS_ADDR" envDefault:"127.0.0.1:9094"`
	// TrustedProxies are the networks, with commas between them, of proxies whose X-Forwarded-For
	// is trusted: the client is the right-most address in it that is none of theirs.
	// Without any, the client is whoever opened the connection.
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
	// RabbitMQURL is never connected to by the api. Empty means that RabbitMQ is not used:
	// /health reports it as disabled, and bulk routes answer 503.
	RabbitMQURL string `env:"RABBITMQ_URL"`

	// StorageURL is where the files of mailings are kept, encrypted: file:///an/absolute/path
	// of a disk that api and dispatcher share, or s3://bucket?region=…
	StorageURL string `env:"STORAGE_URL" envDefault:"file:///var/lib/email-gateway"`
	// SpoolDir is a directory of a disk for bodies of requests over 1 MiB while they arrive: encrypted, without a
	// name, gone with the process. Not set, it is the system's for temporary files. Several apis
	// may share it, and it may hold other files.
	SpoolDir string `env:"SPOOL_DIR"`
	// PublicURL is how readers of mail reach the api; unsubscribe links begin with it.
	// Not set, it is Addr's, which is of use on one machine only.
	PublicURL string `env:"PUBLIC_URL"`
	// UnsubscribeKeys are what seals unsubscribe links: base64 of at least 32 bytes, the same for api
	// and worker; several with commas between them, of which the first seals and all open.
	// Required where RABBITMQ_URL is set.
	UnsubscribeKeys unsubscribe.Keys `env:"UNSUBSCRIBE_KEY"`

	// SESEventsTopics are the ARNs, with commas between them, of the SNS topics whose events
	// of SES are taken at /v1/ses/events. Without any, none are.
	SESEventsTopics []string `env:"SES_EVENTS_TOPICS"`
	// SESEventsSHA256Only refuses SNS's signature version 1.
	SESEventsSHA256Only bool `env:"SES_EVENTS_SHA256_ONLY" envDefault:"false"`
	// SESEventsTrustedURL is where a simulator of SNS is. Whoever answers there can make
	// up events, so it is never set beside real ones, and refused where ENVIRONMENT is
	// production.
	SESEventsTrustedURL TrustedURL `env:"SES_EVENTS_TRUSTED_URL"`

	// EmailTTL is how long an email may be tried, from its acceptance or its sendAt. What is
	// left after it is EXPIRED.
	EmailTTL time.Duration `env:"EMAIL_TTL" envDefault:"24h"`
	// MaxAttempts is how many tries an email has; a try that ended in a provider's
	// quota is not counted.
	MaxAttempts int `env:"EMAIL_MAX_ATTEMPTS" envDefault:"5"`

	// CPFCNPJKeys are what encrypts CPFs and CNPJs: id:base64-of-32-bytes[,id2:…]. The first
	// one encrypts, all of them decrypt.
	CPFCNPJKeys keyring.Ring `env:"CPF_CNPJ_KEYS,required,notEmpty"`
	// CPFCNPJHashKey makes the stored hashes useless to whoever has a list of all CPFs:
	// base64 of at least 32 bytes. Changing it makes a known person a new one. Required where
	// ENVIRONMENT is production.
	CPFCNPJHashKey HashKey `env:"CPF_CNPJ_HASH_KEY"`

	// Quotas bound what each company may use; `gatewayctl company quota` sets others for one
	// company. 0 is unlimited. An api writes them into the database when it starts.
	Quotas

	// Environment is a field of every log line. The value production makes all programs
	// refuse keys and passwords that are published in this project's files.
	Environment string `env:"ENVIRONMENT" envDefault:"development"`
	// LogLevel is the lowest level that is logged: debug, info, warn or error.
	LogLevel string `env:"LOG_LEVEL" envDefault:"info"`
	// TraceSettings say where spans are sent to.
	telemetry.TraceSettings
}

// HashKey is the key of an HMAC-SHA-256, written in base64.
type HashKey []byte

// UnmarshalText reads base64 of at least 32 bytes: a shorter key would be the
// weakest part of the hash.
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

// UnmarshalText reads the URL.
func (t *TrustedURL) UnmarshalText(text []byte) error {
	u, err := url.Parse(string(text))
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" {
		return errors.New("must be an http:// or https:// URL, without a password and a query")
	}
	t.URL = u
	return nil
}

// Bounds of EMAIL_TTL: below a minute the retries have no room, above thirty days
// the outbox is no outbox any more.
const (
	minTTL = time.Minute
	maxTTL = 30 * 24 * time.Hour
)

// Read takes the settings from "NAME=value" lines. A variable set to nothing counts
// as not set.
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

// ReadAddr takes API_ADDR alone, for a caller that only wants to know where the api is.
func ReadAddr(environ []string) (string, error) {
	var c struct {
		Addr string `env:"API_ADDR" envDefault:"127.0.0.1:8080"`
	}
	err := environment.Read(environ, &c).Err()
	return c.Addr, err
}

// reachable is an address of this machine at which a listener on addr answers.
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
	if err := blob.CheckURL(c.StorageURL); err != nil {
		f.Must(false, "STORAGE_URL", err.Error())
	}
	if c.RabbitMQURL != "" {
		f.Must(!c.UnsubscribeKeys.Empty(), "UNSUBSCRIBE_KEY", "is required where RABBITMQ_URL is set: base64 of at least 32 bytes")
	}
	f.Must(!environment.IsProduction(c.Environment) || len(c.CPFCNPJHashKey) > 0, "CPF_CNPJ_HASH_KEY",
		"is required where ENVIRONMENT is production: without it the hash of a CPF can be looked up in a list of all CPFs (openssl rand -base64 32)")
	f.Must(!environment.IsProduction(c.Environment) || c.SESEventsTrustedURL.URL == nil, "SES_EVENTS_TRUSTED_URL",
		"must not be set where ENVIRONMENT is production: whoever answers there can make up bounces and complaints")
	for _, topic := range c.SESEventsTopics {
		f.Must(sns.IsTopic(topic), "SES_EVENTS_TOPICS", "must be ARNs of SNS topics, with commas between them: arn:aws:sns:us-east-1:123456789012:name")
	}
	f.Must(c.EmailTTL == 0 || c.EmailTTL >= minTTL && c.EmailTTL <= maxTTL, "EMAIL_TTL", "must be 1m to 720h")
	f.Must(c.MaxAttempts == 0 || c.MaxAttempts >= 1 && c.MaxAttempts <= email.AttemptLimit, "EMAIL_MAX_ATTEMPTS", fmt.Sprintf("must be 1 to %d", email.AttemptLimit))
	c.Quotas.check(f)
	f.LogLevel("LOG_LEVEL", c.LogLevel)
	c.CheckTraces(f)
}
