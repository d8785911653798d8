// Package rabbitmq carries mailing jobs and recipients over RabbitMQ. Single emails do
// not pass through it. The main functions of dispatcher and worker are the only ones
// that name it.
//
// A message is published once Postgres holds what it stands for, and it carries ids
// only. Every step is confirmed before the one before it is forgotten: a message may come
// twice, and is never lost.
package rabbitmq

import (
	"errors"
	"net"
	"net/url"
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"email-gateway/shared/environment"
)

const (
	// declareTime bounds declaring all topologies: some twenty round trips, and the
	// first time each queue is founded on disk.
	declareTime = 15 * time.Second
	// callTime bounds any other exchange of a question and an answer.
	callTime = 2 * time.Second
)

// Conn is a broker or the nodes of a cluster. The zero Conn has none: make one with
// ParseURL.
type Conn struct{ nodes []node }

// node is one address of the broker.
type node struct {
	url     string // names this node only
	address string // host:port, for errors and logs
}

// ParseURL reads amqp://user:password@host:5672/vhost, or amqps:// for TLS. The last
// part is the virtual host, "/" if there is none. The nodes of a cluster are separated by
// commas: amqp://user:password@a:5672,b:5672,c/vhost.
//
// ParseURL does not connect. Its errors do not repeat the URL, which holds a password.
func ParseURL(text string) (Conn, error) {
	urls := environment.SplitHosts(text)
	var c Conn
	for _, one := range urls {
		uri, err := amqp.ParseURI(one)
		if parsed, _ := url.Parse(one); err != nil || len(urls) > 1 && parsed.Hostname() == "" {
			// The library's own error quotes what may be a part of the password.
			return Conn{}, errors.New("read RabbitMQ URL: it is not amqp://user:password@host:5672/vhost, " +
				"or several host:port with commas between them; special characters in a password must be escaped")
		}
		c.nodes = append(c.nodes, node{url: one, address: net.JoinHostPort(uri.Host, strconv.Itoa(uri.Port))})
	}
	return c, nil
}
