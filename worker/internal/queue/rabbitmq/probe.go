package rabbitmq

import (
	"context"
	"fmt"
	"time"
)

// probeTimeout bounds dialling and the AMQP handshake together.
const probeTimeout = 2 * time.Second

// Probe looks whether the broker lets us in. It opens and closes a connection each
// time, which is what tells whether another one could be opened now.
func Probe(url string) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		if _, err := ParseURL(url); err != nil {
			return err
		}
		connection, _, err := dial(ctx, url, "probe", probeTimeout)
		if err != nil {
			return err
		}
		if err := connection.CloseDeadline(time.Now().Add(probeTimeout)); err != nil {
			return fmt.Errorf("close rabbitmq connection: %w", err)
		}
		return nil
	}
}
