package doctor

import (
	"errors"
	"net"
	"net/url"
	"strings"

	"email-gateway/api/internal/config"
)

// value is that of a variable, "" if it is not set.
func (x *examination) value(name string) string {
	for i := len(x.Environ) - 1; i >= 0; i-- { // the last one counts
		if value, found := strings.CutPrefix(x.Environ[i], name+"="); found {
			return value
		}
	}
	return ""
}

// settings looks at the environment as the api does, where it is the api's. What dispatcher
// and worker are set to stands in theirs, which nobody here knows.
func (x *examination) settings() {
	const check = "settings"
	x.bulk = x.value("RABBITMQ_URL") != ""
	if x.value("CPF_CNPJ_KEYS") == "" {
		x.add(check, Skipped, "To have them looked at, run it with the api's environment: docker compose run --rm gatewayctl doctor",
			"The api's settings are not set here (CPF_CNPJ_KEYS is missing), and those of dispatcher and worker are never looked at.")
		return
	}
	c, err := config.Read(x.Environ)
	if err != nil {
		for _, fault := range faultsOf(err) {
			x.add(check, Failure, "Mend it: .env.example tells what each variable means.", "The api would not start: %s", fault)
		}
		return
	}
	before := len(x.report.Findings)
	if len(c.CPFCNPJHashKey) == 0 {
		x.add(check, Warning, "Set CPF_CNPJ_HASH_KEY before the first recipient is stored: it cannot be changed later.",
			"Without CPF_CNPJ_HASH_KEY, whoever has the database can find out the CPFs behind the hashes.")
	}
	if u, err := url.Parse(c.PublicURL); err == nil && x.bulk && local(u.Hostname()) {
		x.add(check, Warning, "Set PUBLIC_URL to the https:// address at which readers of mail reach the api, the same for api and worker.",
			"Unsubscribe links lead to %s, which nobody else can reach.", c.PublicURL)
	} else if err == nil && x.bulk && u.Scheme != "https" {
		x.add(check, Warning, "Put TLS in front of the api, and https:// into PUBLIC_URL: mail programs follow one-click links over https only.",
			"Unsubscribe links begin with %s.", c.PublicURL)
	}
	switch {
	case c.SESEventsTrustedURL.URL != nil:
		x.add(check, Warning, "Never set SES_EVENTS_TRUSTED_URL beside a real SES.",
			"Events are believed that %s signs, which is for the simulator alone.", c.SESEventsTrustedURL.Redacted())
	case len(c.SESEventsTopics) == 0:
		x.add(check, Warning, "Publish the configuration set's events to an SNS topic, and name it in SES_EVENTS_TOPICS (api/README.md tells how).",
			"Nobody tells the gateway of bounces and complaints: SES_EVENTS_TOPICS is empty.")
	}
	if len(x.report.Findings) == before {
		x.add(check, OK, "", "The api would start with the settings that are set here. Those of dispatcher and worker are not looked at: they check them when they start.")
	}
}

// joined is an error made of others.
type joined interface {
	error
	Unwrap() []error
}

// faultsOf are the errors that one was joined from.
func faultsOf(err error) []error {
	if all, ok := errors.AsType[joined](err); ok {
		return all.Unwrap()
	}
	return []error{err}
}

// local says that a host is reached from this machine only.
func local(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && (ip.IsLoopback() || ip.IsUnspecified())
}
