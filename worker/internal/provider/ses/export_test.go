package ses

import (
	"context"
	"net"
)

// Classify classifies errors that no server can cause.
func Classify(err error) error { return classify(err, request{}) }

// AsAWS treats the endpoint as SES's own, although it is a server of the test.
func (s *Sender) AsAWS() *Sender {
	s.emulator = false
	return s
}

// WithDialer sets the network dialer of the Sender.
func (c Config) WithDialer(dial func(ctx context.Context, network, address string) (net.Conn, error)) Config {
	c.dial = dial
	return c
}
