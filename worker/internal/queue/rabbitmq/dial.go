package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

const (
	// heartbeat is the requested interval: each side sends a frame every half of it. The client closes a connection after 1.5
	// intervals without a frame. The broker does so after one to two, and requeues unacknowledged messages. The manual of
	// RabbitMQ recommends 5 to 20 s. ?heartbeat= in the URL overrides it.
	heartbeat = 5 * time.Second
	// dialTime bounds connecting to one node, including the TLS and AMQP handshakes.
	dialTime = 5 * time.Second
	// headStart is how long a node may take before the next one is dialed in parallel: a frozen node delays the connection by a
	// second, and a slow node still has dialTime.
	headStart = time.Second
	// writeTime bounds one write to the socket. Otherwise a broker that does not read would block
	// the writer.
	writeTime = 5 * time.Second
)

// dialer connects to one of the nodes of the broker. It must not be used concurrently.
type dialer struct {
	name  string // of the connection, as listed by the broker
	nodes []node // the next dial starts with the first
}

// newDialer shuffles the nodes, so that the connections are distributed over them.
func newDialer(c Conn, name string) *dialer {
	d := &dialer{name: name, nodes: slices.Clone(c.nodes)}
	rand.Shuffle(len(d.nodes), func(i, j int) { d.nodes[i], d.nodes[j] = d.nodes[j], d.nodes[i] })
	return d
}

// dialed is the result of dialing one node. Closing the socket ends a blocked call.
type dialed struct {
	node    int // its index
	address string
	conn    *amqp.Connection
	socket  net.Conn
	err     error
}

// dial connects to the first node that answers. The next dial starts with the following node, because a lost connection usually
// means that its node was lost.
func (d *dialer) dial(ctx context.Context) (dialed, error) {
	if len(d.nodes) == 0 {
		return dialed{}, errors.New("connect to rabbitmq: no address")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan dialed, len(d.nodes))
	begun, ended, errs := 0, 0, make([]error, len(d.nodes))
	for ended < len(d.nodes) {
		var later <-chan time.Time
		if begun < len(d.nodes) {
			go func(i int, n node) { results <- d.dialNode(ctx, i, n) }(begun, d.nodes[begun])
			begun++
			later = time.After(headStart)
		}
		select {
		case r := <-results:
			ended++
			if r.err == nil {
				go discard(results, begun-ended)
				d.nodes = slices.Concat(d.nodes[r.node+1:], d.nodes[:r.node+1])
				return r, nil
			}
			errs[r.node] = r.err
		case <-later:
		}
	}
	return dialed{}, fmt.Errorf("connect to rabbitmq: %w", errors.Join(errs...))
}

// discard closes connections of nodes that were slower.
func discard(results <-chan dialed, n int) {
	for range n {
		if r := <-results; r.err == nil {
			_ = r.socket.Close()
		}
	}
}

// dialNode connects to node i. It may still run after dial has returned and changed d.nodes.
//
// The library's own recovery is off: after it has reconnected, an acknowledgement of an earlier message acknowledges another
// one, which is then lost.
func (d *dialer) dialNode(ctx context.Context, i int, n node) dialed {
	r := dialed{node: i, address: n.address}
	giveUp := func() bool { return true }
	r.conn, r.err = amqp.DialConfig(n.url, amqp.Config{
		Heartbeat:  heartbeat,
		Properties: amqp.Table{"product": "email-gateway", "connection_name": "email-gateway " + d.name},
		Dial: func(network, addr string) (net.Conn, error) {
			dialer := net.Dialer{Timeout: dialTime}
			conn, err := dialer.DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			r.socket = conn
			giveUp = context.AfterFunc(ctx, func() { _ = conn.Close() }) // the handshake does not support a context
			// The library removes the deadline after the handshake.
			return boundedWrites{conn}, conn.SetDeadline(time.Now().Add(dialTime))
		},
	})
	if !giveUp() && r.err == nil {
		r.err = context.Cause(ctx)
	}
	if r.err != nil {
		r.err = fmt.Errorf("%s: %w", n.address, r.err)
		if r.socket != nil {
			_ = r.socket.Close() // the library leaves it open after some errors
		}
	}
	return r
}

// boundedWrites sets a deadline for each write.
type boundedWrites struct{ net.Conn }

func (b boundedWrites) Write(p []byte) (int, error) {
	if err := b.SetWriteDeadline(time.Now().Add(writeTime)); err != nil {
		return 0, err
	}
	return b.Conn.Write(p)
}
