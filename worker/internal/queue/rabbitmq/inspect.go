package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	amqp "github.com/rabbitmq/amqp091-go"
	"golang.org/x/sync/singleflight"
)

// QueueState is the state of a queue.
type QueueState struct {
	Messages  int // ready messages, without unacknowledged ones
	Consumers int
}

// Inspector measures the queues of some pipelines. Its connection does not publish, so it also works while the broker blocks
// publishers. It declares nothing.
type Inspector struct {
	conn    *reconnector
	queues  []string
	looking singleflight.Group
}

// NewInspector makes an Inspector, which connects at the first call.
func NewInspector(log *slog.Logger, conn Conn, topologies ...Topology) *Inspector {
	i := &Inspector{conn: newReconnector(log, conn, "inspector")}
	for _, t := range topologies {
		for _, q := range t.Queues() {
			i.queues = append(i.queues, q.Name)
		}
	}
	return i
}

// Inspect returns the state of every queue by name, without queues that do not exist.
func (i *Inspector) Inspect(ctx context.Context) (map[string]QueueState, error) {
	return i.look(ctx, "all", i.queues)
}

// Ping checks that the broker responds.
func (i *Inspector) Ping(ctx context.Context) error {
	_, err := i.look(ctx, "none", nil)
	return err
}

// Close closes the connection.
func (i *Inspector) Close() error {
	i.conn.close()
	return nil
}

// look shares one measurement among concurrent calls for the same queues.
func (i *Inspector) look(ctx context.Context, question string, queues []string) (map[string]QueueState, error) {
	session, err := i.conn.session(ctx)
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

// measure reads each queue's state without creating it. The answer "not found" ends the channel.
func (s *session) measure(queues []string) (states map[string]QueueState, err error) {
	states = make(map[string]QueueState, len(queues))
	err = s.withTimeout(callTime, func() error {
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
