// Package config reads the environment of the dispatcher and the worker into one
// struct each. The two main functions use it; every other package is given the
// values it needs.
//
// All mistakes are reported together, each with the name of its variable, and no
// message repeats a URL: URLs hold passwords.
package config

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/caarlos0/env/v11"

	"email-gateway/shared/email"
)

// Process is what dispatcher and worker have in common.
type Process struct {
	// DatabaseURL names the Postgres that holds what is true.
	DatabaseURL string `env:"DATABASE_URL,required,notEmpty"`
	// RedisURL names the Redis that carries the queues: redis://, rediss:// (TLS),
	// redis-sentinel://host1,host2/0?master=name or redis-cluster://host1,host2.
	RedisURL string `env:"REDIS_URL,required,notEmpty"`
	// RabbitMQURL may be empty: single emails do not need RabbitMQ.
	RabbitMQURL string `env:"RABBITMQ_URL"`

	// Environment is a field of every log line.
	Environment string `env:"ENVIRONMENT" envDefault:"development"`
	// LogLevel is debug, info, warn or error.
	LogLevel string `env:"LOG_LEVEL" envDefault:"info"`

	// Concurrency is how many emails one worker has in its hands at once. Twice that
	// many tasks must stand on a queue for the worker never to wait, so the
	// dispatcher reads it too, for the time in which no worker has reported.
	Concurrency int `env:"WORKER_CONCURRENCY" envDefault:"10"`
	// SendRate is recipients per second, where the provider does not tell. The dispatcher
	// keeps two seconds' worth on each queue.
	SendRate float64 `env:"SES_MAX_SEND_RATE" envDefault:"100"`
	// MaxAttempts is how many tries an email has; a try that ended in a provider's
	// quota is not counted.
	MaxAttempts int `env:"EMAIL_MAX_ATTEMPTS"`
}

func (p *Process) check(f *faults) {
	f.url("DATABASE_URL", p.DatabaseURL, "postgres", "postgresql")
	f.url("REDIS_URL", p.RedisURL, "redis", "rediss", "unix",
		"redis-sentinel", "rediss-sentinel", "redis-cluster", "rediss-cluster")
	f.url("RABBITMQ_URL", p.RabbitMQURL, "amqp", "amqps")
	f.must(slices.Contains([]string{"debug", "info", "warn", "error"}, p.LogLevel), "LOG_LEVEL", "must be debug, info, warn or error")
	f.must(p.Concurrency >= 1 && p.Concurrency <= 1024, "WORKER_CONCURRENCY", "must be 1 to 1024")
	f.must(p.SendRate > 0 && !math.IsInf(p.SendRate, 0), "SES_MAX_SEND_RATE", "must be greater than 0")
	f.must(p.MaxAttempts >= 1 && p.MaxAttempts <= email.AttemptLimit, "EMAIL_MAX_ATTEMPTS", fmt.Sprintf("must be 1 to %d", email.AttemptLimit))
}

// defaults are those that another package holds already.
func defaults() Process {
	return Process{MaxAttempts: email.MaxAttempts}
}

// read fills settings, a pointer to a struct whose fields hold the defaults that
// its tags do not, from "NAME=value" lines. A variable set to nothing counts as not set.
func read(environ []string, settings any) faults {
	err := env.ParseWithOptions(settings, env.Options{Environment: env.ToMap(environ)})
	var all env.AggregateError
	if err == nil {
		return nil
	}
	if !errors.As(err, &all) {
		return faults{err}
	}
	var f faults
	for _, err := range all.Errors {
		f = append(f, named(err, reflect.TypeOf(settings).Elem()))
	}
	return f
}

// named turns an error of the library, which may speak of a field, into one that
// speaks of the variable.
func named(err error, settings reflect.Type) error {
	var (
		unset  env.VarIsNotSetError
		empty  env.EmptyVarError
		parsed env.ParseError
	)
	switch {
	case errors.As(err, &unset):
		return fmt.Errorf("%s: must be set", unset.Key)
	case errors.As(err, &empty):
		return fmt.Errorf("%s: must be set", empty.Key)
	case errors.As(err, &parsed):
		name := parsed.Name
		if field, ok := settings.FieldByName(parsed.Name); ok {
			name, _, _ = strings.Cut(field.Tag.Get("env"), ",")
		}
		return fmt.Errorf("%s: must be %s: %w", name, kind(parsed.Type), bare(parsed.Err))
	}
	return err
}

// kind says in words what a variable of this type holds.
func kind(t reflect.Type) string {
	words := map[string]string{
		"int": "a whole number", "float64": "a number", "bool": "true or false",
		"time.Duration": "a duration such as 250ms", "email.Backoff": "durations such as 1s,5s,30s",
	}
	return cmp.Or(words[t.String()], t.String())
}

// bare takes the parser's own name out of its error.
func bare(err error) error {
	var number *strconv.NumError
	if errors.As(err, &number) {
		return fmt.Errorf("%q: %w", number.Num, number.Err)
	}
	return err
}

// faults collects what is wrong.
type faults []error

func (f *faults) must(ok bool, name, rule string) {
	if !ok {
		*f = append(*f, fmt.Errorf("%s: %s", name, rule))
	}
}

// url checks scheme and host and leaves the rest to the library that will connect.
// Several hosts may stand in it, which net/url does not read.
func (f *faults) url(name, value string, schemes ...string) {
	if value == "" {
		return
	}
	scheme, rest, found := strings.Cut(value, "://")
	f.must(found && slices.Contains(schemes, scheme) && rest != "", name,
		"must be a URL beginning with "+strings.Join(schemes, "://, ")+"://")
}

func (f *faults) address(name, value string) {
	_, port, err := net.SplitHostPort(value)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	f.must(err == nil, name, "must be host:port, such as 127.0.0.1:9091")
}

func (f *faults) httpURL(name, value string) {
	u, err := url.Parse(value)
	f.must(err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "", name, "must be an http:// or https:// URL")
}

func (f faults) err() error {
	if len(f) == 0 {
		return nil
	}
	return fmt.Errorf("read the environment:\n%w", errors.Join(f...))
}
