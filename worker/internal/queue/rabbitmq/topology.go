package rabbitmq

import (
	"slices"
	"time"
)

// Names on the broker. Operators know them, and other programs may publish there.
const (
	MailingJobs       = "mailing.jobs.process" // the queue of mailing jobs
	MailingDLQ        = "mailing.jobs.dlq"
	RecipientsQueue   = "recipients_queue" // the queue of recipients to take in
	RecipientsDLQ     = "recipients_dlq"
	mailingExchange   = "mailing.exchange"
	mailingKey        = "mailing.process"
	mailingRetry1     = "mailing.retry.1"
	mailingRetry2     = "mailing.retry.2"
	recipientsMain    = "recipients_exchange"
	recipientsRetry   = "recipients_retry_exchange"
	recipientsDLX     = "recipients_dlx"
	recipientsRetry10 = "recipients_retry_10s" // its name says what its TTL is by default
)

// Topology is one pipeline on the broker: a main queue, the queues in which a task
// waits for its next try, and the queue of those that gave up. Publisher and consumer
// know nothing else about a pipeline.
//
// When a wait is over the broker itself puts the task back on the main queue. The main
// queue's own dead letters, which only a task makes that kills its consumers again and
// again, go to the DLQ: a queue has one place for dead letters.
type Topology struct {
	Exchanges []Exchange
	Main      Queue
	// Retries are used in this order, the last of them for all further tries.
	Retries []Queue
	DLQ     Queue
	// MaxRetries is how often a task comes again before it goes to the DLQ.
	MaxRetries int
}

// Exchange is durable and holds nothing.
type Exchange struct {
	Name string
	Kind string // topic or direct
}

// Queue is durable, replicated, and reached through an exchange.
type Queue struct {
	Name string
	// Exchange and Key are where a message for this queue is published to. The exchange
	// "" is the broker's own, whose keys are the queues' names; to any other one the
	// queue is bound.
	Exchange, Key string
	// TTL is how long a message waits in a retry queue.
	TTL time.Duration
}

// direct is a queue that is reached by its name.
func direct(name string, ttl time.Duration) Queue {
	return Queue{Name: name, Key: name, TTL: ttl}
}

// Mailing is the pipeline of mailing jobs: tried at once, after 10 s and after 30 s.
func Mailing() Topology {
	return Topology{
		Exchanges:  []Exchange{{mailingExchange, "topic"}},
		Main:       Queue{Name: MailingJobs, Exchange: mailingExchange, Key: mailingKey},
		Retries:    []Queue{direct(mailingRetry1, 10*time.Second), direct(mailingRetry2, 30*time.Second)},
		DLQ:        direct(MailingDLQ, 0),
		MaxRetries: 2,
	}
}

// Recipients is the pipeline of recipients to take in: tried at once, then maxRetries
// times with a wait of retryTTL (milliseconds count) before each.
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

// WithPrefix is the same pipeline under names of its own, so that tests share one
// virtual host.
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

// Queues are all queues of the pipeline.
func (t Topology) Queues() []Queue {
	return slices.Concat([]Queue{t.Main}, t.Retries, []Queue{t.DLQ})
}

// retry is where a task waits that came retried times before.
func (t Topology) retry(retried int) Queue {
	return t.Retries[min(retried, len(t.Retries)-1)]
}
