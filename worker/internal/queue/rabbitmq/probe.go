// Package rabbitmq is the connection to RabbitMQ. Single emails do not pass through
// it; for now it only tells whether the broker answers.
package rabbitmq

import (
	"context"
	"fmt"
	"net"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// probeTimeout bounds dialling and the AMQP handshake together.
const probeTimeout = 2 * time.Second

// Probe looks whether the broker lets us in. It opens and closes a connection each
// time, which is what tells whether another one could be opened now.
func Probe(url string) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		connection, err := amqp.DialConfig(url, amqp.Config{
			Properties: amqp.Table{"connection_name": "email-gateway probe"},
			Dial: func(network, addr string) (net.Conn, error) {
				dialer := net.Dialer{Timeout: probeTimeout}
				conn, err := dialer.DialContext(ctx, network, addr)
				if err != nil {
					return nil, err
				}
				// The library lifts the deadline once the handshake is over.
				return conn, conn.SetDeadline(time.Now().Add(probeTimeout))
			},
		})
		if err != nil {
			return fmt.Errorf("connect to rabbitmq: %w", err)
		}
		if err := connection.CloseDeadline(time.Now().Add(probeTimeout)); err != nil {
			return fmt.Errorf("close rabbitmq connection: %w", err)
		}
		return nil
	}
}
