// Package config reads the environment of the dispatcher and the worker into one struct each. Only the two main
// functions use it and pass the values on.
//
// All errors are reported together, each with the name of its variable. No message contains a URL, because URLs may
// contain passwords.
package config

import (
	"fmt"
	"math"
	"time"

	"email-gateway/shared/email"
	"email-gateway/shared/environment"
	"email-gateway/shared/telemetry"
)

// Process has the variables that dispatcher and worker share.
type Process struct {
	// DatabaseURL is the Postgres URL: postgres://, version 15 or newer. Separate several hosts by
	// commas and add target_session_attrs=read-write to connect to the primary.
	DatabaseURL string `env:"DATABASE_URL,required,notEmpty"`
	// Pooled must be true if DATABASE_URL leads to PgBouncer in transaction mode: the program then
	// prepares no statements and sends no session settings. `migrate roles` stores those on the roles.
	Pooled bool `env:"DATABASE_POOLED" envDefault:"false"`
	// RedisURL is the URL of the Redis that holds the queues: redis://, rediss:// (TLS),
	// redis-sentinel://host1,host2/0?master=name&password=… (a password before the hosts is the sentinels') or
	// redis-cluster://host1,host2. Each installation needs a Redis or a database
	// number of its own, or a Cluster, which has no other database: the programs refuse one with the marker of another.
	RedisURL string `env:"REDIS_URL,required,notEmpty"`
	// RabbitMQURL is the URL of the RabbitMQ for mailings and recipients: amqp:// or amqps://, with
	// the nodes of a cluster separated by commas (amqp://user:password@a:5672,b:5672,c/vhost). It
	// may be empty: single emails do not need RabbitMQ. Each installation needs a RabbitMQ or a virtual host of its own: the
	// programs refuse one with the marker of another.
	RabbitMQURL string `env:"RABBITMQ_URL"`

	// DrainDelay is how long a stopping program continues to serve while /readyz answers 503, 0s
	// to 1m: longer than the load balancer needs to notice. 0s if there is none.
	DrainDelay time.Duration `env:"DRAIN_DELAY" envDefault:"0s"`

	// Environment is a field of every log line. The value production makes all programs
	// refuse keys and passwords that are published in this project's files.
	Environment string `env:"ENVIRONMENT" envDefault:"development"`
	// LogLevel is the minimum log level: debug, info, warn or error. Programs log to stdout. Requests and results of emails, which a
	// restore of the database needs, are logged at any level.
	LogLevel string `env:"LOG_LEVEL" envDefault:"info"`
	// TraceSettings say where spans are sent to.
	telemetry.TraceSettings

	// SendRate is the limit of recipients per second if the provider has not reported its own within an hour. The
	// dispatcher keeps three quarters of a second's worth on each queue, besides the emails in flight.
	SendRate float64 `env:"SES_MAX_SEND_RATE" envDefault:"100"`
	// MaxAttempts is the maximum number of attempts per email; an attempt that the provider refused
	// because of a quota or its rate limit is not counted.
	MaxAttempts int `env:"EMAIL_MAX_ATTEMPTS" envDefault:"5"`
	// ConfigurationSet is SES's configuration set for sent emails, which publishes their events. SES's suppression list should be
	// off for it.
	ConfigurationSet string `env:"SES_CONFIGURATION_SET"`
	// FeedbackWindow is how long an email of unknown outcome waits for the provider's feedback. Not
	// set: 2 minutes with a configuration set, and 0 without one, because no feedback would arrive.
	// The dispatcher, which resolves the emails of a worker that has stopped, uses the value that
	// the workers report, or its own if none did. If workers read SES_EVENTS_QUEUE, the wait also lasts until one of them has
	// drained the queue after it, at most an hour longer.
	FeedbackWindow *time.Duration `env:"SES_FEEDBACK_WINDOW"`
	// Backoff is the wait after each attempt, ±25 %; the last one applies to all further attempts.
	Backoff email.Backoff `env:"EMAIL_BACKOFF" envDefault:"1s,5s,30s,2m,10m"`
	// TTL is the deadline of an email, from its first attempt if it belongs to a mailing, or from
	// its replay.
	TTL time.Duration `env:"EMAIL_TTL" envDefault:"24h"`
}

func (p *Process) check(f *environment.Faults) {
	f.URL("DATABASE_URL", p.DatabaseURL, "postgres", "postgresql")
	f.URL("REDIS_URL", p.RedisURL, "redis", "rediss", "unix",
		"redis-sentinel", "rediss-sentinel", "redis-cluster", "rediss-cluster")
	f.URL("RABBITMQ_URL", p.RabbitMQURL, "amqp", "amqps")
	f.DrainDelay(p.DrainDelay)
	f.LogLevel("LOG_LEVEL", p.LogLevel)
	p.CheckTraces(f)
	f.Must(p.SendRate > 0 && !math.IsInf(p.SendRate, 0), "SES_MAX_SEND_RATE", "must be greater than 0")
	f.Must(p.Window() >= 0 && p.Window() <= time.Hour, "SES_FEEDBACK_WINDOW", "must be 0s to 1h")
	f.Must(p.MaxAttempts >= 1 && p.MaxAttempts <= email.AttemptLimit, "EMAIL_MAX_ATTEMPTS", fmt.Sprintf("must be 1 to %d", email.AttemptLimit))
	f.Must(email.IsTTL(p.TTL), "EMAIL_TTL", email.TTLRange)
	longest := p.longestWait()
	f.Must(p.TTL > longest || !email.IsTTL(p.TTL), "EMAIL_TTL", fmt.Sprintf("must be longer than the waits of EMAIL_BACKOFF between %d tries, %s: the last try could never be made",
		p.MaxAttempts, longest))
}

// longestWait returns the time from the first to the last attempt of an email that is refused every time, with each
// wait extended by the maximum jitter.
func (p *Process) longestWait() time.Duration {
	if len(p.Backoff) == 0 { // EMAIL_BACKOFF is invalid, which is reported separately
		return 0
	}
	var sum time.Duration
	for n := 1; n < p.MaxAttempts; n++ {
		sum += p.Backoff.MaxDelay(n)
	}
	return sum
}

// usualFeedbackWindow is the default of FeedbackWindow. Nearly all events arrive within a minute, though SNS retries a
// delivery for an hour. A longer window delays the retry of every email whose outcome is unknown.
const usualFeedbackWindow = 2 * time.Minute

// Window returns FeedbackWindow or its default.
func (p *Process) Window() time.Duration {
	switch {
	case p.FeedbackWindow != nil:
		return *p.FeedbackWindow
	case p.ConfigurationSet != "":
		return usualFeedbackWindow
	}
	return 0
}
