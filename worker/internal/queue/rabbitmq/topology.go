package rabbitmq

import (
	"slices"
	"time"
)

// Names on the broker. Operators use them, and other programs may publish there.
const (
	MailingJobs       = "mailing.jobs.process" // the queue of mailing jobs
	mailingDLQ        = "mailing.jobs.dlq"
	RecipientsQueue   = "recipients_queue" // the queue of recipients to import
	RecipientsDLQ     = "recipients_dlq"
	mailingExchange   = "mailing.exchange"
	mailingKey        = "mailing.process"
	mailingRetry1     = "mailing.retry.1"
	mailingRetry2     = "mailing.retry.2"
	recipientsMain    = "recipients_exchange"
	recipientsRetry   = "recipients_retry_exchange"
	recipientsDLX     = "recipients_dlx"
	recipientsRetry10 = "recipients_retry_10s" // named after the default TTL
)

// Topology is one pipeline on the broker: a main queue, the retry queues, and the dead-letter queue. Publisher and Consumer use
// no other data about a pipeline.
//
// The broker itself moves a task from a retry queue to the main queue when its wait is over. A queue has only one target for
// dead letters. For the main queue it is the DLQ, which receives tasks that repeatedly kill their consumers.
type Topology struct {
	Exchanges []Exchange
	Main      Queue
	// Retries are used in this order; the last one is used for all further tries.
	Retries []Queue
	DLQ     Queue
	// MaxRetries is how often a task is retried before it goes to the DLQ.
	MaxRetries int
}

// Exchange is durable.
type Exchange struct {
	Name string
	Kind string // topic or direct
}

// Queue is durable, replicated, and reached through an exchange.
type Queue struct {
	Name string
	// Messages for this queue are published to Exchange with Key. The exchange "" is the default exchange, whose keys are queue
	// names; the queue is bound to any other exchange.
	Exchange, Key string
	// TTL is how long a message waits in a retry queue.
	TTL time.Duration
}

// direct returns a queue that is addressed by its name.
func direct(name string, ttl time.Duration) Queue {
	return Queue{Name: name, Key: name, TTL: ttl}
}

// Mailing returns the pipeline of mailing jobs: tried immediately, after 10 s and after another 30 s.
func Mailing() Topology {
	return Topology{
		Exchanges:  []Exchange{{mailingExchange, "topic"}},
		Main:       Queue{Name: MailingJobs, Exchange: mailingExchange, Key: mailingKey},
		Retries:    []Queue{direct(mailingRetry1, 10*time.Second), direct(mailingRetry2, 30*time.Second)},
		DLQ:        direct(mailingDLQ, 0),
		MaxRetries: 2,
	}
}

// Recipients returns the pipeline of recipient imports: tried immediately, then maxRetries times after a wait of retryTTL each
// (in whole milliseconds).
func Recipients(retryTTL time.Duration, maxRetries int) Topology {
	return Topology{
		Exchanges: []Exchange{{recipientsMain, "direct"}, {recipientsRetry, "direct"}, {recipientsDLX, "direct"}},
		Main:      Queue{Name: RecipientsQueue, Exchange: recipientsMain, Key: RecipientsQueue},
		Retries: []Queue{
			{Name: recipientsRetry10, Exchange: recipientsRetry, Key: recipientsRetry10, TTL: retryTTL},
		},
		DLQ:        Queue{Name: RecipientsDLQ, Exchange: recipientsDLX, Key: RecipientsDLQ},
		MaxRetries: maxRetries,
	}
}

// WithPrefix returns the same pipeline with prefixed names, so that tests can share one virtual host.
func (t Topology) WithPrefix(prefix string) Topology {
	t.Exchanges = slices.Clone(t.Exchanges)
	for i := range t.Exchanges {
		t.Exchanges[i].Name = prefix + t.Exchanges[i].Name
	}
	t.Main, t.DLQ = t.Main.withPrefix(prefix), t.DLQ.withPrefix(prefix)
	t.Retries = slices.Clone(t.Retries)
	for i := range t.Retries {
		t.Retries[i] = t.Retries[i].withPrefix(prefix)
	}
	return t
}

func (q Queue) withPrefix(prefix string) Queue {
	if q.Exchange != "" {
		q.Exchange = prefix + q.Exchange
	} else {
		q.Key = prefix + q.Key
	}
	q.Name = prefix + q.Name
	return q
}

// Queues returns all queues of the pipeline.
func (t Topology) Queues() []Queue {
	return slices.Concat([]Queue{t.Main}, t.Retries, []Queue{t.DLQ})
}

// retry returns the retry queue of a task that was retried retried times before.
func (t Topology) retry(retried int) Queue {
	return t.Retries[min(retried, len(t.Retries)-1)]
}
