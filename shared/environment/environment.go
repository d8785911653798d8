// Package environment reads a program's environment into a struct and reports all errors at once,
// each with the name of its variable. The config packages of api and worker use it.
package environment

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caarlos0/env/v11"
)

// Read sets settings, a pointer to a struct whose fields have the defaults that its tags do not,
// from "NAME=value" lines. An empty variable counts as not set.
func Read(environ []string, settings any) Faults {
	err := env.ParseWithOptions(settings, env.Options{Environment: env.ToMap(environ)})
	var all env.AggregateError
	if err == nil {
		return nil
	}
	if !errors.As(err, &all) {
		return Faults{err}
	}
	var f Faults
	for _, err := range all.Errors {
		f = append(f, named(err, reflect.TypeOf(settings).Elem()))
	}
	return f
}

// named converts an error of the library, which may name a field, to one that names the variable.
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
		return fmt.Errorf("%s: %s%w", name, kind(parsed.Type), bare(parsed.Err))
	}
	return err
}

// kind describes the values of this type; "" for a type whose errors do so.
func kind(t reflect.Type) string {
	switch t.String() {
	case "int":
		return "must be a whole number: "
	case "float64":
		return "must be a number: "
	case "bool":
		return "must be true or false: "
	case "time.Duration":
		return "must be a duration such as 250ms: "
	}
	return ""
}

// bare removes the parser's name from its error.
func bare(err error) error {
	var number *strconv.NumError
	if errors.As(err, &number) {
		return fmt.Errorf("%q: %w", number.Num, number.Err)
	}
	return err
}

// Faults collects the errors of an environment. Its methods add to it; none of them includes a URL,
// which may contain a password.
type Faults []error

// Must adds a fault of the variable, unless ok. A variable has at most one fault: one that could
// not be parsed has its default, which is valid.
func (f *Faults) Must(ok bool, name, rule string) {
	if !ok && !f.has(name) {
		*f = append(*f, fmt.Errorf("%s: %s", name, rule))
	}
}

func (f *Faults) has(name string) bool {
	return slices.ContainsFunc(*f, func(err error) bool { return strings.HasPrefix(err.Error(), name+":") })
}

// URL checks scheme and host and leaves the rest to the library that connects. It accepts several
// hosts, which net/url does not.
func (f *Faults) URL(name, value string, schemes ...string) {
	if value == "" {
		return
	}
	scheme, rest, found := strings.Cut(value, "://")
	f.Must(found && slices.Contains(schemes, scheme) && rest != "", name,
		"must be a URL beginning with "+strings.Join(schemes, "://, ")+"://")
}

// LogLevel requires one of slog's four levels.
func (f *Faults) LogLevel(name, value string) {
	f.Must(slices.Contains([]string{"debug", "info", "warn", "error"}, value), name, "must be debug, info, warn or error")
}

// Address requires host:port, with an optional host.
func (f *Faults) Address(name, value string) {
	_, port, err := net.SplitHostPort(value)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	f.Must(err == nil, name, "must be host:port, such as 127.0.0.1:8080")
}

// DrainDelay requires a duration within an orchestrator's usual stop timeout.
func (f *Faults) DrainDelay(delay time.Duration) {
	f.Must(delay >= 0 && delay <= time.Minute, "DRAIN_DELAY", "must be 0s to 1m")
}

// HTTPURL requires an http or https URL.
func (f *Faults) HTTPURL(name, value string) {
	u, err := url.Parse(value)
	f.Must(err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "", name, "must be an http:// or https:// URL")
}

// Err returns all faults as one error, or nil.
func (f Faults) Err() error {
	if len(f) == 0 {
		return nil
	}
	return fmt.Errorf("read the environment:\n%w", errors.Join(f...))
}
