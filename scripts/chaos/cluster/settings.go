package cluster

import (
	"fmt"
	"maps"
	"time"

	"email-gateway/scripts/local/programs"
)

// sharedSettings returns the settings of all programs, but for the addresses at the ends of links.
func (c *Cluster) sharedSettings() map[string]string {
	env := programs.Settings()
	maps.Copy(env, map[string]string{
		"STORAGE_URL": c.S3.URL, "LOG_LEVEL": "warn",
		"QUOTA_RUNNING_MAILINGS": "10000", // a run may upload more than 20 at a time
		"EMAIL_TTL":              EmailTTL.String(), "EMAIL_BACKOFF": backoff, "WORKER_CONCURRENCY": fmt.Sprint(Concurrency), "SES_MAX_SEND_RATE": fmt.Sprint(SendRate),
		// Crashes are detected within seconds, so that a run of a minute covers it: this changes
		// settings, not code.
		"MAILING_RECOVERY_INTERVAL": "5s", "MAILING_STALE_AFTER": "10s",
		"RECIPIENTS_RETRY_TTL_MS": "2000",
		"SES_CONFIGURATION_SET":   "chaos", "SES_FEEDBACK_WINDOW": FeedbackWindow.String(),
		"SES_EVENTS_TOPICS": topic, "SES_EVENTS_TRUSTED_URL": "http://" + c.Mail.Addr,
		"WEBHOOK_ALLOW_PRIVATE": "true", "WEBHOOK_BACKOFF": webhookBackoff, "WEBHOOK_PROBE_INTERVAL": "3s",
	})
	maps.Copy(env, c.cfg.Env)
	return env
}

// settings returns those of all programs, with a program's own.
func (c *Cluster) settings(own map[string]string) map[string]string {
	all := make(map[string]string)
	maps.Copy(all, c.env)
	maps.Copy(all, own)
	return all
}

// backoff is proportional to the default table, and lets five attempts finish within a run.
const backoff = "300ms,700ms,1500ms,3s,5s"

// webhookBackoff has the first waits of the default, and then so many short ones that no delivery of
// a run has its last attempt.
const webhookBackoff = "1s,2s,3s,5s,5s,5s,5s,5s,5s,5s,5s,5s,5s,5s,5s,5s,5s,5s,5s,5s,5s,5s,5s,5s"

// EmailTTL is the deadline of an email after it is due.
const EmailTTL = 5 * time.Minute

// Concurrency is the number of emails that each worker has in flight.
const Concurrency = 32

// SendRate is SES's limit in recipients per second: about what two cores can send while they run
// everything else. The window of a queue on Redis is three quarters of a second of it.
const SendRate = 500
