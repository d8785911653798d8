package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	amqp "github.com/rabbitmq/amqp091-go"
	"golang.org/x/sync/singleflight"
)

// QueueState is what stands on a queue.
type QueueState struct {
	Messages  int // ready to be taken; those in work are not counted
	Consumers int
}

// Inspector looks at the queues of some pipelines. Its connection publishes nothing, so
// that it gets answers from a broker that takes no messages. It declares nothing.
type Inspector struct {
	link    *link
	queues  []string
	looking singleflight.Group
}

// NewInspector makes an Inspector, which connects when it is asked.
func NewInspector(log *slog.Logger, conn Conn, topologies ...Topology) *Inspector {
	i := &Inspector{link: newLink(log, conn, "inspector")}
	for _, t := range topologies {
		for _, q := range t.Queues() {
			i.queues = append(i.queues, q.Name)
		}
	}
	return i
}

// Inspect returns the state of every queue by its name. A queue that does not exist is
// not in the answer.
func (i *Inspector) Inspect(ctx context.Context) (map[string]QueueState, error) {
	return i.look(ctx, "all", i.queues)
}

// Ping asks the broker for a sign of life.
func (i *Inspector) Ping(ctx context.Context) error {
	_, err := i.look(ctx, "none", nil)
	return err
}

// Close ends the connection.
func (i *Inspector) Close() error {
	i.link.close()
	return nil
}

// look answers all who ask the same question at the same time with one look.
func (i *Inspector) look(ctx context.Context, question string, queues []string) (map[string]QueueState, error) {
	session, err := i.link.session(ctx)
	if err != nil {
		return nil, fmt.Errorf("look at queues: %w", err)
	}
	select {
	case r := <-i.looking.DoChan(question, func() (any, error) { return session.measure(queues) }):
		if r.Err != nil {
			return nil, fmt.Errorf("look at queues: %w", r.Err)
		}
		return r.Val.(map[string]QueueState), nil
	case <-ctx.Done():
		return nil, fmt.Errorf("look at queues: %w", context.Cause(ctx))
	}
}

// measure asks for each queue without creating it. The answer "there is none" ends the
// channel.
func (s *session) measure(queues []string) (states map[string]QueueState, err error) {
	states = make(map[string]QueueState, len(queues))
	err = s.within(callTime, func() error {
		channel, err := s.conn.Channel()
		if err != nil {
			return err
		}
		for _, name := range queues {
			var refusal *amqp.Error
			switch q, err := channel.QueueDeclarePassive(name, true, false, false, false, nil); {
			case err == nil:
				states[name] = QueueState{Messages: q.Messages, Consumers: q.Consumers}
			case errors.As(err, &refusal) && refusal.Code == amqp.NotFound:
				if channel, err = s.conn.Channel(); err != nil {
					return err
				}
			default:
				return err
			}
		}
		return channel.Close()
	})
	return states, err
}
