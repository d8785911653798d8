// Package config reads the environment of the dispatcher and the worker into one
// struct each. The two main functions use it; every other package is given the
// values it needs.
//
// All mistakes are reported together, each with the name of its variable, and no
// message repeats a URL: URLs hold passwords.
package config

import (
	"fmt"
	"math"
	"time"

	"email-gateway/shared/email"
	"email-gateway/shared/environment"
	"email-gateway/shared/telemetry"
)

// Process is what dispatcher and worker have in common.
type Process struct {
	// DatabaseURL names the Postgres that holds what is true: postgres://, version 15 or newer.
	DatabaseURL string `env:"DATABASE_URL,required,notEmpty"`
	// RedisURL names the Redis that carries the queues: redis://, rediss:// (TLS),
	// redis-sentinel://host1,host2/0?master=name or redis-cluster://host1,host2.
	RedisURL string `env:"REDIS_URL,required,notEmpty"`
	// RabbitMQURL names the RabbitMQ that carries mailings and recipients: amqp:// or
	// amqps://. It may be empty: single emails do not need one.
	RabbitMQURL string `env:"RABBITMQ_URL"`

	// Environment is a field of every log line. The value production makes all programs but
	// migrate refuse keys and passwords that are published in this project's files.
	Environment string `env:"ENVIRONMENT" envDefault:"development"`
	// LogLevel is the lowest level that is logged: debug, info, warn or error.
	LogLevel string `env:"LOG_LEVEL" envDefault:"info"`
	// TraceSettings say where spans are sent to.
	telemetry.TraceSettings

	// Concurrency is how many emails one worker has in its hands at once. Twice that
	// many tasks must stand on a queue for the worker never to wait, so the
	// dispatcher reads it too, for the time in which no worker has reported.
	Concurrency int `env:"WORKER_CONCURRENCY" envDefault:"10"`
	// SendRate is recipients per second, where the provider does not tell. The dispatcher
	// keeps a second's worth on each queue.
	SendRate float64 `env:"SES_MAX_SEND_RATE" envDefault:"100"`
	// MaxAttempts is how many tries an email has; a try that ended in a provider's
	// quota is not counted.
	MaxAttempts int `env:"EMAIL_MAX_ATTEMPTS" envDefault:"5"`
	// ConfigurationSet is SES's configuration set that emails are sent through, which
	// publishes what became of them.
	ConfigurationSet string `env:"SES_CONFIGURATION_SET"`
	// FeedbackWindow is how long the provider's feedback is waited for when it is not known
	// whether it took an email. Not set: 2 minutes with a configuration set, and not at
	// all without one, since no feedback would come. The dispatcher, which decides for a
	// worker that died, goes by what the workers tell, and by its own where none did.
	FeedbackWindow *time.Duration `env:"SES_FEEDBACK_WINDOW"`
	// Backoff is the wait after each try, ±25 %; the last one stands for all that follow.
	Backoff email.Backoff `env:"EMAIL_BACKOFF" envDefault:"1s,5s,30s,2m,10m"`
	// TTL is how long an email may be tried, from its first attempt if it belongs to a
	// mailing, or from its replay.
	TTL time.Duration `env:"EMAIL_TTL" envDefault:"24h"`
}

func (p *Process) check(f *environment.Faults) {
	f.URL("DATABASE_URL", p.DatabaseURL, "postgres", "postgresql")
	f.URL("REDIS_URL", p.RedisURL, "redis", "rediss", "unix",
		"redis-sentinel", "rediss-sentinel", "redis-cluster", "rediss-cluster")
	f.URL("RABBITMQ_URL", p.RabbitMQURL, "amqp", "amqps")
	f.LogLevel("LOG_LEVEL", p.LogLevel)
	p.CheckTraces(f)
	f.Must(p.Concurrency >= 1 && p.Concurrency <= 1024, "WORKER_CONCURRENCY", "must be 1 to 1024")
	f.Must(p.SendRate > 0 && !math.IsInf(p.SendRate, 0), "SES_MAX_SEND_RATE", "must be greater than 0")
	f.Must(p.Window() >= 0 && p.Window() <= time.Hour, "SES_FEEDBACK_WINDOW", "must be 0s to 1h")
	f.Must(p.MaxAttempts >= 1 && p.MaxAttempts <= email.AttemptLimit, "EMAIL_MAX_ATTEMPTS", fmt.Sprintf("must be 1 to %d", email.AttemptLimit))
}

// usualFeedbackWindow: nearly all events come within a minute, though SNS repeats a delivery
// for an hour. A longer window delays the retry of every email whose outcome is unknown.
const usualFeedbackWindow = 2 * time.Minute

// Window is FeedbackWindow with its default.
func (p *Process) Window() time.Duration {
	switch {
	case p.FeedbackWindow != nil:
		return *p.FeedbackWindow
	case p.ConfigurationSet != "":
		return usualFeedbackWindow
	}
	return 0
}
