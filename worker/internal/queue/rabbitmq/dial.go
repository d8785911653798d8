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
	// heartbeat is the interval that we ask the broker for: each side sends a frame every
	// half of it. After one and a half of it in silence we give a connection up; after one
	// to two the broker does, and puts unacknowledged messages back onto the queue.
	// RabbitMQ's manual advises 5 to 20 s. ?heartbeat= in the URL overrides it.
	heartbeat = 5 * time.Second
	// dialTime bounds connecting to one node, the handshakes of TLS and AMQP included.
	dialTime = 5 * time.Second
	// headStart is how long a node has to answer before the next one is dialed beside it:
	// a frozen node costs a second, and a slow one still has dialTime.
	headStart = time.Second
	// writeTime bounds one write to the socket. A broker that does not read would
	// block the writer otherwise.
	writeTime = 5 * time.Second
)

// dialer connects to one of a broker's nodes. One goroutine uses it at a time.
type dialer struct {
	name  string // of the connection, as the broker lists it
	nodes []node // the next dial begins with the first
}

// newDialer takes the nodes in random order, so that connections spread over them.
func newDialer(c Conn, name string) *dialer {
	d := &dialer{name: name, nodes: slices.Clone(c.nodes)}
	rand.Shuffle(len(d.nodes), func(i, j int) { d.nodes[i], d.nodes[j] = d.nodes[j], d.nodes[i] })
	return d
}

// dialed is the result of dialing one node. The socket is closed to end a call on a
// connection that does not answer.
type dialed struct {
	node    int // its index
	address string
	conn    *amqp.Connection
	socket  net.Conn
	err     error
}

// dial connects to the first node that answers. The dial after it begins with the next
// node: a connection that was lost mostly means that its node was lost too.
func (d *dialer) dial(ctx context.Context) (dialed, error) {
	if len(d.nodes) == 0 {
		return dialed{}, errors.New("connect to rabbitmq: there is no address")
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

// discard closes connections that another node was faster than.
func discard(results <-chan dialed, n int) {
	for range n {
		if r := <-results; r.err == nil {
			_ = r.socket.Close()
		}
	}
}

// dialNode connects to one node, the i-th. It may run on after dial, which then changes d.nodes.
//
// The library's own recovery stays off: after it has reconnected, an acknowledgement of
// a message from before acknowledges another one, which is then lost.
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
			giveUp = context.AfterFunc(ctx, func() { _ = conn.Close() }) // the handshake knows no context
			// The library lifts the deadline once the handshake is over.
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

// boundedWrites gives each write a deadline of its own.
type boundedWrites struct{ net.Conn }

func (b boundedWrites) Write(p []byte) (int, error) {
	if err := b.SetWriteDeadline(time.Now().Add(writeTime)); err != nil {
		return 0, err
	}
	return b.Conn.Write(p)
}
