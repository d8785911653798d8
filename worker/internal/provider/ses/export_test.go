package ses

import (
	"context"
	"net"
)

// Classify is open to tests for the errors that no server can cause.
var Classify = classify

// WithDialer puts a test's own network under the Sender.
func (c Config) WithDialer(dial func(ctx context.Context, network, address string) (net.Conn, error)) Config {
	c.dial = dial
	return c
}
