// Package rabbitmq carries mailing jobs and recipients over RabbitMQ, but no single emails. Only the main packages of
// dispatcher and worker refer to it.
//
// A message is published after its row is committed in Postgres, and contains ids only. The broker confirms each step before
// the previous one is acknowledged: a message may be delivered twice, but is never lost.
package rabbitmq

import (
	"context"
	"errors"
	"net"
	"net/url"
	"strconv"
	"time"

	"github.com/google/uuid"
	amqp "github.com/rabbitmq/amqp091-go"

	"email-gateway/shared/environment"
)

const (
	// declareTime bounds the declaration of all topologies: some twenty round trips, and at the first start each queue is
	// created on disk.
	declareTime = 15 * time.Second
	// callTime bounds any other synchronous call.
	callTime = 2 * time.Second
)

// Conn is the address of a broker or of a cluster's nodes. Make one with ParseURL; the zero Conn
// has no address.
type Conn struct {
	nodes    []node
	identify func(context.Context) (uuid.UUID, error) // nil = any installation's
}

// node is one address of the broker.
type node struct {
	url     string // with this node as the only host
	address string // host:port, for errors and logs
}

// ParseURL parses amqp://user:password@host:5672/vhost, or amqps:// for TLS. The default virtual
// host is "/". The nodes of a cluster are separated by commas:
// amqp://user:password@a:5672,b:5672,c/vhost.
//
// ParseURL does not connect. Its errors do not include the URL, which contains a password.
func ParseURL(text string) (Conn, error) {
	urls := environment.SplitHosts(text)
	var c Conn
	for _, one := range urls {
		uri, err := amqp.ParseURI(one)
		if parsed, _ := url.Parse(one); err != nil || len(urls) > 1 && parsed.Hostname() == "" {
			// The error of the library may contain a part of the password.
			return Conn{}, errors.New("read RabbitMQ URL: want amqp://user:password@host:5672/vhost, " +
				"or several host:port with commas between them; special characters in a password must be percent-encoded")
		}
		c.nodes = append(c.nodes, node{url: one, address: net.JoinHostPort(uri.Host, strconv.Itoa(uri.Port))})
	}
	return c, nil
}
