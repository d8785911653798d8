// Package rabbitmq carries mailing jobs and recipients over RabbitMQ. Single emails do
// not pass through it. The main functions of dispatcher and worker are the only ones
// that name it.
//
// A message is published once Postgres holds what it stands for, and it carries ids
// only. Every step is confirmed before the one before it is forgotten: a message may come
// twice, and is never lost.
package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

const (
	// heartbeat is how often each side shows that it lives; after one and a half of them
	// in silence we give a connection up. ?heartbeat= in the URL overrules it.
	heartbeat = 10 * time.Second
	// dialTime bounds dialling and the handshakes of TLS and AMQP together.
	dialTime = 5 * time.Second
	// writeTime bounds one write to the socket: a broker that has stopped reading must
	// not hold up those who want to write for longer.
	writeTime = 5 * time.Second
	// declareTime bounds declaring all topologies: some twenty round trips, and the
	// first time each queue is founded on disk.
	declareTime = 15 * time.Second
	// callTime bounds any other exchange of a question and an answer.
	callTime = 2 * time.Second
)

// Conn says how to reach RabbitMQ. The zero Conn reaches nothing: make one with ParseURL.
type Conn struct{ url string }

// ParseURL reads amqp://user:password@host:5672/vhost, or amqps:// for TLS. The last
// part is the virtual host, "/" if there is none.
//
// Nothing is connected yet. Errors do not repeat the URL, which holds a password.
func ParseURL(text string) (Conn, error) {
	if _, err := amqp.ParseURI(text); err != nil {
		// The library's own error quotes what may be a part of the password.
		return Conn{}, errors.New(
			"read RabbitMQ URL: it is not amqp://user:password@host:5672/vhost; special characters in a password must be escaped")
	}
	return Conn{url: text}, nil
}

// dial connects within limit. The socket is handed out too, because closing it is the
// only thing that ends a call on a connection that does not answer.
//
// The library's own recovery stays off: after it has reconnected, an acknowledgement of
// a message from before acknowledges another one, which is then lost.
func dial(ctx context.Context, url, name string, limit time.Duration) (*amqp.Connection, net.Conn, error) {
	var socket net.Conn
	connection, err := amqp.DialConfig(url, amqp.Config{
		Heartbeat:  heartbeat,
		Properties: amqp.Table{"product": "email-gateway", "connection_name": "email-gateway " + name},
		Dial: func(network, addr string) (net.Conn, error) {
			dialer := net.Dialer{Timeout: limit}
			conn, err := dialer.DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			socket = conn
			// The library lifts the deadline once the handshake is over.
			return boundedWrites{conn}, conn.SetDeadline(time.Now().Add(limit))
		},
	})
	if err != nil {
		if socket != nil {
			_ = socket.Close() // the library leaves it open after some errors
		}
		return nil, nil, fmt.Errorf("connect to rabbitmq: %w", err)
	}
	return connection, socket, nil
}

// boundedWrites gives each write a deadline of its own.
type boundedWrites struct{ net.Conn }

func (b boundedWrites) Write(p []byte) (int, error) {
	if err := b.SetWriteDeadline(time.Now().Add(writeTime)); err != nil {
		return 0, err
	}
	return b.Conn.Write(p)
}
