package pg

import (
	"context"
	"net"
	"time"
)

// answerTime is how long the answer to a statement may take to arrive, in addition to the maximum run time of the
// statement.
const answerTime = 5 * time.Second

// dialer makes connections that fail if the server has sent nothing for the time silence, because its machine or the
// network is down. TCP alone would wait a quarter of an hour, and block the emails of one group for that time.
type dialer struct {
	net     net.Dialer
	silence time.Duration
	dialed  func(net.Conn) // gets each connection; nil = not needed
}

func (d dialer) Dial(network, address string) (net.Conn, error) {
	return d.DialContext(context.Background(), network, address)
}

func (d dialer) DialTimeout(network, address string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return d.DialContext(ctx, network, address)
}

func (d dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := d.net.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if d.dialed != nil {
		d.dialed(conn)
	}
	return &impatientConn{Conn: conn, silence: d.silence}, nil
}

type impatientConn struct {
	net.Conn
	silence time.Duration
	bounded bool // the driver has set its own deadline, for the handshake
}

func (c *impatientConn) SetDeadline(t time.Time) error {
	c.bounded = !t.IsZero()
	return c.Conn.SetDeadline(t)
}

func (c *impatientConn) Read(b []byte) (int, error) {
	if !c.bounded {
		if err := c.SetReadDeadline(time.Now().Add(c.silence)); err != nil {
			return 0, err
		}
	}
	return c.Conn.Read(b)
}

func (c *impatientConn) Write(b []byte) (int, error) {
	if !c.bounded {
		if err := c.SetWriteDeadline(time.Now().Add(c.silence)); err != nil {
			return 0, err
		}
	}
	return c.Conn.Write(b)
}
