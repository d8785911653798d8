package rabbitmq

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"
)

// deliveryLimit is how often a message may come back from consumers that died with it
// in their hands before the broker takes it for the reason and moves it to the DLQ.
const deliveryLimit = 20

// Flaw is a part of the topology that could not be declared: it stands there with other
// arguments, or we may not touch it. The pipeline goes on with what is there.
type Flaw struct {
	Part    string // such as "queue recipients_retry_10s"
	Problem string // what the broker says is different
}

// part is one thing to declare.
type part struct {
	name    string
	declare func(*amqp.Channel) error
}

// parts are in the order in which the broker wants them: exchanges, queues, bindings.
// unlimited is how the broker wants to be told that a queue has no delivery limit; nil
// where saying nothing means it.
func (t Topology) parts(unlimited any) []part {
	var parts []part
	for _, e := range t.Exchanges {
		parts = append(parts, part{"exchange " + e.Name, func(c *amqp.Channel) error {
			return c.ExchangeDeclare(e.Name, e.Kind, true, false, false, false, nil)
		}})
	}
	queue := func(q Queue, arguments amqp.Table) {
		parts = append(parts, part{"queue " + q.Name, func(c *amqp.Channel) error {
			_, err := c.QueueDeclare(q.Name, true, false, false, false, arguments)
			return err
		}})
	}
	main := deadLetters(t.DLQ)
	main["x-delivery-limit"] = int64(deliveryLimit)
	queue(t.Main, main)
	for _, q := range t.Retries {
		arguments := deadLetters(t.Main)
		arguments["x-message-ttl"] = q.TTL.Milliseconds()
		queue(q, arguments)
	}
	dlq := quorum()
	if unlimited != nil {
		dlq["x-delivery-limit"] = unlimited
	}
	queue(t.DLQ, dlq)
	for _, q := range t.Queues() {
		if q.Exchange == "" {
			continue
		}
		parts = append(parts, part{"binding of queue " + q.Name, func(c *amqp.Channel) error {
			return c.QueueBind(q.Name, q.Key, q.Exchange, false, nil)
		}})
	}
	return parts
}

// quorum is a replicated queue that refuses, by a negative confirm, what it cannot take.
func quorum() amqp.Table {
	return amqp.Table{"x-queue-type": "quorum", "x-overflow": "reject-publish"}
}

// deadLetters is a queue whose dead letters go to another one. At least once means that
// the broker keeps a message until that other queue has confirmed it; by default it
// throws it over and forgets it.
func deadLetters(to Queue) amqp.Table {
	arguments := quorum()
	arguments["x-dead-letter-exchange"] = to.Exchange
	arguments["x-dead-letter-routing-key"] = to.Key
	arguments["x-dead-letter-strategy"] = "at-least-once"
	return arguments
}

// declare makes what is missing. A refusal ends the channel it came on, and nothing
// else: the parts after it are declared on the next one.
func (s *session) declare(topologies []Topology) (flaws []Flaw, err error) {
	err = s.within(declareTime, func() error {
		var channel *amqp.Channel
		for _, part := range s.parts(topologies) {
			if channel == nil {
				if channel, err = s.conn.Channel(); err != nil {
					return fmt.Errorf("open channel: %w", err)
				}
			}
			var refusal *amqp.Error
			switch err := part.declare(channel); {
			case err == nil:
			case errors.As(err, &refusal) && refusal.Server && !s.conn.IsClosed():
				flaws = append(flaws, Flaw{Part: part.name, Problem: refusal.Reason})
				channel = nil
			default:
				return fmt.Errorf("declare %s: %w", part.name, err)
			}
		}
		if channel == nil {
			return nil
		}
		return channel.Close()
	})
	return flaws, err
}

func (s *session) parts(topologies []Topology) []part {
	var all []part
	for _, t := range topologies {
		all = append(all, t.parts(unlimited(s.conn.Properties["version"]))...)
	}
	return all
}

// unlimited: from RabbitMQ 4.0 on, a quorum queue that says nothing has a limit of 20,
// after which a DLQ would throw messages away, and -1 lifts it. Before, saying nothing
// was the only way, and -1 a limit that the first return exceeds.
func unlimited(version any) any {
	text, _ := version.(string)
	major, _, _ := strings.Cut(text, ".")
	if n, err := strconv.Atoi(major); err != nil || n < 4 {
		return nil
	}
	return int64(-1)
}

func sameFlaws(a, b []Flaw) bool { return slices.Equal(a, b) }
