package ses

import (
	"context"
	"net"
)

// Classify is exported for errors that no server can cause.
var Classify = classify

// WithDialer sets the network dialer of the Sender.
func (c Config) WithDialer(dial func(ctx context.Context, network, address string) (net.Conn, error)) Config {
	c.dial = dial
	return c
}
