package config

import (
	"time"

	"email-gateway/shared/environment"
)

// Recipients has the variables for the import of recipients over RabbitMQ.
type Recipients struct {
	// RetryTTLMS is how long a recipient's message waits before a retry, in milliseconds. To change
	// it, delete the retry queue.
	RetryTTLMS int `env:"RECIPIENTS_RETRY_TTL_MS" envDefault:"10000"`
	// MaxRetries is how often a recipient's message is retried before it goes to the DLQ.
	MaxRetries int `env:"RECIPIENTS_MAX_RETRIES" envDefault:"3"`
	// BatchSize is the number of recipients written in one statement.
	BatchSize int `env:"RECIPIENTS_BATCH_SIZE" envDefault:"1000"`
	// BatchTimeoutMS is how long the first recipient of a batch waits for the others, in milliseconds.
	BatchTimeoutMS int `env:"RECIPIENTS_BATCH_TIMEOUT_MS" envDefault:"1000"`
	// ProcConcurrency is how many messages of a batch are dead-lettered at the same time.
	ProcConcurrency int `env:"RECIPIENTS_PROC_CONCURRENCY" envDefault:"8"`
	// BatchConcurrency is how many batches of recipients are written at the same time.
	BatchConcurrency int `env:"RECIPIENTS_BATCH_CONCURRENCY" envDefault:"2"`
}

// RetryTTL returns RetryTTLMS as a duration.
func (r *Recipients) RetryTTL() time.Duration { return time.Duration(r.RetryTTLMS) * time.Millisecond }

// BatchTimeout returns BatchTimeoutMS as a duration.
func (r *Recipients) BatchTimeout() time.Duration {
	return time.Duration(r.BatchTimeoutMS) * time.Millisecond
}

// Prefetch returns the maximum number of messages that a worker holds: those of the batches that are being written, and
// of one that is being collected. AMQP allows 65,535; the limits below keep it lower.
func (r *Recipients) Prefetch() int { return r.BatchSize * (r.BatchConcurrency + 1) }

func (r *Recipients) checkRecipients(f *environment.Faults) {
	f.Must(r.RetryTTLMS >= 100 && r.RetryTTLMS <= 3_600_000, "RECIPIENTS_RETRY_TTL_MS", "must be 100 to 3600000")
	f.Must(r.MaxRetries >= 0 && r.MaxRetries <= 100, "RECIPIENTS_MAX_RETRIES", "must be 0 to 100")
	f.Must(r.BatchSize >= 1 && r.BatchSize <= 5000, "RECIPIENTS_BATCH_SIZE", "must be 1 to 5000")
	f.Must(r.BatchTimeoutMS >= 1 && r.BatchTimeoutMS <= 60_000, "RECIPIENTS_BATCH_TIMEOUT_MS", "must be 1 to 60000")
	f.Must(r.ProcConcurrency >= 1 && r.ProcConcurrency <= 64, "RECIPIENTS_PROC_CONCURRENCY", "must be 1 to 64")
	f.Must(r.BatchConcurrency >= 1 && r.BatchConcurrency <= 8, "RECIPIENTS_BATCH_CONCURRENCY", "must be 1 to 8")
}
