package doctor

import (
	"errors"
	"net/url"
	"strings"

	"email-gateway/api/internal/config"
	"email-gateway/shared/environment"
)

// value returns the value of a variable, "" if it is not set.
func (x *examination) value(name string) string {
	for i := len(x.Environ) - 1; i >= 0; i-- { // the last one wins
		if value, found := strings.CutPrefix(x.Environ[i], name+"="); found {
			return value
		}
	}
	return ""
}

// settings validates the environment as the api does, if it is the api's. The settings of
// dispatcher and worker are not known here.
func (x *examination) settings() {
	const check = "settings"
	x.bulk = x.value("RABBITMQ_URL") != ""
	if x.value("CPF_CNPJ_KEYS") == "" {
		x.add(check, Skipped, "To check them, run doctor with the api's environment: docker compose run --rm gatewayctl doctor",
			"The api's settings are not set here (CPF_CNPJ_KEYS is missing); those of dispatcher and worker are never checked here.")
		return
	}
	c, err := config.Read(x.Environ)
	if err != nil {
		for _, fault := range faultsOf(err) {
			x.add(check, Failure, "Correct it: .env.example describes each variable.", "The api would not start: %s", fault)
		}
		return
	}
	x.keyIDs = c.CPFCNPJKeys.IDs()
	x.links = &linkSettings{publicURL: c.PublicURL, keys: c.UnsubscribeKeys.Fingerprints()}
	before := len(x.report.Findings)
	if len(c.CPFCNPJHashKey) == 0 {
		x.add(check, Warning, "Set CPF_CNPJ_HASH_KEY before the first recipient is stored: it cannot be changed later.",
			"Without CPF_CNPJ_HASH_KEY, anyone with access to the database can recover the CPFs from the hashes.")
	}
	if u, err := url.Parse(c.PublicURL); err == nil && x.bulk && environment.IsLocal(u.Hostname()) {
		x.add(check, Warning, "Set PUBLIC_URL, for api and worker alike, to the https:// address at which recipients reach the api.",
			"Unsubscribe links lead to %s, which other machines cannot reach.", c.PublicURL)
	} else if err == nil && x.bulk && u.Scheme != "https" {
		x.add(check, Warning, "Put TLS in front of the api and set PUBLIC_URL to an https:// address: mail clients follow one-click links only over https.",
			"Unsubscribe links begin with %s.", c.PublicURL)
	}
	switch {
	case c.SESEventsTrustedURL.URL != nil:
		x.add(check, Warning, "Do not set SES_EVENTS_TRUSTED_URL with the real SES.",
			"Events signed by %s are trusted, which is for the simulator only.", c.SESEventsTrustedURL.Redacted())
	case len(c.SESEventsTopics) == 0 && x.value("SES_EVENTS_QUEUE") == "":
		x.add(check, Warning, "Publish the configuration set's events to an SNS topic, and name it in SES_EVENTS_TOPICS, or give the workers an SES_EVENTS_QUEUE (see api/README.md).",
			"The gateway gets no notifications of bounces and complaints: SES_EVENTS_TOPICS is empty, and so is SES_EVENTS_QUEUE.")
	}
	if len(x.report.Findings) == before {
		x.add(check, OK, "", "The api's settings are valid. The settings of dispatcher and worker are not checked here: they validate them when they start.")
	}
}

// joined is an error that wraps several.
type joined interface {
	error
	Unwrap() []error
}

// faultsOf splits a joined error.
func faultsOf(err error) []error {
	if all, ok := errors.AsType[joined](err); ok {
		return all.Unwrap()
	}
	return []error{err}
}
