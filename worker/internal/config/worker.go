package config

import (
	"cmp"
	"strings"

	"email-gateway/shared/blob"
	"email-gateway/shared/clientip"
	"email-gateway/shared/environment"
)

// Worker is the environment of the worker.
type Worker struct {
	Process
	Mailings
	Recipients
	Recovery
	Webhooks

	// Addr is the address that serves /livez, /readyz, /metrics and /monitoring.
	Addr string `env:"WORKER_ADDR" envDefault:"127.0.0.1:9092"`

	// Concurrency is the maximum number of emails that one worker has in flight, 1 to 1024. Empty
	// or 0: as many as the account's send rate needs at the latency that the worker measures, 10 to 512.
	Concurrency int `env:"WORKER_CONCURRENCY"`
	// Endpoint is the address of SES in place of the region's own: a VPC endpoint, or a simulator.
	// It must be https if ENVIRONMENT is production.
	Endpoint string `env:"SES_ENDPOINT"`
	// EventsQueue is the URL of the SQS queue from which the worker reads SES events, in addition to
	// those that the api receives from SNS. Calls go to the URL's host. Each installation needs a queue
	// of its own: workers of another one would take its events. Empty: no queue is read.
	EventsQueue string `env:"SES_EVENTS_QUEUE"`
	// Region is the AWS region of SES, the same for all workers. It is required if ENVIRONMENT is
	// production. Empty: us-east-1.
	Region string `env:"AWS_REGION"`
	// StorageURL is the location where the api stores attachments: the same as its own, which the worker
	// only reads. It decrypts them with CPFCNPJKeys.
	StorageURL string `env:"STORAGE_URL" envDefault:"file:///var/lib/email-gateway"`
	// MonitoringUser is the user name for /monitoring, with MonitoringPassword; without both it is
	// disabled.
	MonitoringUser string `env:"MONITORING_USER"`
	// MonitoringPassword is the password of MonitoringUser.
	MonitoringPassword string `env:"MONITORING_PASSWORD"`
	// MonitoringWritable lets MonitoringUser delete, run and pause tasks as well.
	MonitoringWritable bool `env:"MONITORING_WRITABLE" envDefault:"false"`
	// TrustedProxies are the comma-separated networks of proxies in front of /monitoring whose
	// X-Forwarded-For is trusted when wrong passwords are counted per address.
	TrustedProxies clientip.Proxies `env:"TRUSTED_PROXIES"`
}

// Limits of the number of emails in flight if it follows the send rate.
const (
	// MinConcurrency is the limit before the latency is known. It sends 200 emails per second at a latency of 50 ms.
	MinConcurrency = 10
	// MaxConcurrency limits a worker's memory. It sends 1,000 emails per second at a latency of half a second.
	MaxConcurrency = 512
)

// StartConcurrency returns the limit of emails in flight with which a worker starts.
func (w *Worker) StartConcurrency() int { return cmp.Or(w.Concurrency, MinConcurrency) }

// MaxConcurrency returns the maximum number of emails in flight.
func (w *Worker) MaxConcurrency() int { return cmp.Or(w.Concurrency, MaxConcurrency) }

// ReadWorker reads "NAME=value" lines, as os.Environ returns them.
func ReadWorker(environ []string) (Worker, error) {
	var w Worker
	f := environment.Read(environ, &w)
	w.Process.check(&f)
	w.Recovery.check(&f)
	w.Webhooks.check(&f)
	w.setPublicURL(&f, environment.IsProduction(w.Environment))
	if w.RabbitMQURL != "" {
		w.Mailings.check(&f)
		w.checkRecipients(&f)
	}
	f.RefusePublicSecrets(environ)
	f.Address("WORKER_ADDR", w.Addr)
	f.Must(w.Concurrency >= 0 && w.Concurrency <= 1024, "WORKER_CONCURRENCY", "must be 1 to 1024, or empty")
	if err := blob.CheckURL(w.StorageURL); err != nil {
		f.Must(false, "STORAGE_URL", err.Error())
	}
	f.Must(!environment.IsProduction(w.Environment) || w.Region != "", "AWS_REGION",
		"is required where ENVIRONMENT is production: in another region than its senders', SES refuses a worker's emails")
	w.Region = cmp.Or(w.Region, "us-east-1")
	if w.Endpoint != "" {
		f.HTTPURL("SES_ENDPOINT", w.Endpoint)
		f.Must(!environment.IsProduction(w.Environment) || strings.HasPrefix(strings.ToLower(w.Endpoint), "https:"), "SES_ENDPOINT",
			"must be an https:// URL where ENVIRONMENT is production: http:// is for simulators")
	}
	if w.EventsQueue != "" {
		f.HTTPURL("SES_EVENTS_QUEUE", w.EventsQueue)
		f.Must(!environment.IsProduction(w.Environment) || strings.HasPrefix(strings.ToLower(w.EventsQueue), "https:"), "SES_EVENTS_QUEUE",
			"must be an https:// URL where ENVIRONMENT is production: http:// is for emulators")
	}
	f.Must((w.MonitoringUser == "") == (w.MonitoringPassword == ""), "MONITORING_PASSWORD", "must be set together with MONITORING_USER")
	f.Must(!w.MonitoringWritable || w.MonitoringUser != "", "MONITORING_WRITABLE", "needs MONITORING_USER and MONITORING_PASSWORD")
	return w, f.Err()
}
