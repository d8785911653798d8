package rabbitmq

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"
)

// deliveryLimit is how often a message may return from consumers that died, before the broker assumes that the message is the
// cause and moves it to the DLQ.
const deliveryLimit = 20

// Mismatch is a part of the topology that could not be declared: it exists with other arguments, or
// access was refused. The pipeline uses what exists.
type Mismatch struct {
	Part    string // e.g. queue recipients_retry_10s
	Problem string // the broker's error
}

// part is one declaration.
type part struct {
	name    string
	declare func(*amqp.Channel) error
}

// parts returns the declarations in the required order: exchanges, queues, bindings. unlimited is
// the argument for "no delivery limit"; nil where that is the default.
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

// quorum returns the arguments of a replicated queue that refuses messages it cannot accept by a negative confirm.
func quorum() amqp.Table {
	return amqp.Table{"x-queue-type": "quorum", "x-overflow": "reject-publish"}
}

// deadLetters returns the arguments of a queue whose dead letters go to another queue. With at-least-once the broker keeps a
// message until that queue has confirmed it; by default it forwards the message without a confirm.
func deadLetters(to Queue) amqp.Table {
	arguments := quorum()
	arguments["x-dead-letter-exchange"] = to.Exchange
	arguments["x-dead-letter-routing-key"] = to.Key
	arguments["x-dead-letter-strategy"] = "at-least-once"
	return arguments
}

// declare declares all missing parts of the topologies, after those of first. After a refusal, which closes the
// channel, the next parts are declared on a new one.
func (s *session) declare(first []part, topologies []Topology) (mismatches []Mismatch, err error) {
	err = s.withTimeout(declareTime, func() error {
		var channel *amqp.Channel
		for _, part := range slices.Concat(first, s.parts(topologies)) {
			if channel == nil {
				if channel, err = s.conn.Channel(); err != nil {
					return fmt.Errorf("open channel: %w", err)
				}
			}
			var refusal *amqp.Error
			switch err := part.declare(channel); {
			case err == nil:
			case errors.As(err, &refusal) && refusal.Server && !s.conn.IsClosed():
				mismatches = append(mismatches, Mismatch{Part: part.name, Problem: refusal.Reason})
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
	return mismatches, err
}

func (s *session) parts(topologies []Topology) []part {
	var all []part
	for _, t := range topologies {
		all = append(all, t.parts(unlimited(s.conn.Properties["version"]))...)
	}
	return all
}

// unlimited returns the delivery-limit argument for "no limit". From RabbitMQ 4.0 on, the default of a quorum queue is 20,
// after which a DLQ would drop messages, and -1 disables the limit. In earlier versions there is no limit without the argument,
// and -1 is a limit that the first return exceeds.
func unlimited(version any) any {
	text, _ := version.(string)
	major, _, _ := strings.Cut(text, ".")
	if n, err := strconv.Atoi(major); err != nil || n < 4 {
		return nil
	}
	return int64(-1)
}

func sameMismatches(a, b []Mismatch) bool { return slices.Equal(a, b) }
