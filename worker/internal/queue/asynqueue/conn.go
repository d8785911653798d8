package asynqueue

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"email-gateway/shared/email"
)

// ioTimeout bounds dialling, one read and one write. It is shorter than the
// library's 5 s and 3 s because a command that met a frozen Redis is repeated three
// times, and a shutdown waits for all of that.
const ioTimeout = 2 * time.Second

// Conn says how to reach Redis, and under which names. The zero Conn reaches nothing:
// make one with ParseURL.
type Conn struct {
	open   func() redis.UniversalClient
	prefix string
}

// ParseURL reads a Redis URL:
//
//	redis://user:password@host:6379/0         one server; rediss:// with TLS
//	unix:///run/redis.sock?db=0               one server, by its socket
//	redis-sentinel://host1:26379,host2:26379/0?master=name
//	redis-cluster://host1:6379,host2:6379
//
// A port that is not named is 6379. The last two exist with rediss- too. In a sentinel URL, user and
// password are the sentinels'; those of Redis go into ?username=…&password=….
// Pool sizes and timeouts can be set as go-redis names them (?pool_size=50).
//
// Nothing is connected yet. Errors do not repeat the URL, which holds a password.
func ParseURL(text string) (Conn, error) {
	u, kind, err := parseHosts(text)
	if err != nil {
		return Conn{}, fmt.Errorf("read Redis URL: %w", err)
	}
	var open func() redis.UniversalClient
	switch kind {
	case "":
		open, err = single(u)
	case "sentinel":
		open, err = sentinel(u)
	case "cluster":
		open, err = cluster(u)
	default:
		err = fmt.Errorf("unknown scheme %q", u.Scheme+"-"+kind)
	}
	if err != nil {
		return Conn{}, fmt.Errorf("read Redis URL: %w", err)
	}
	return Conn{open: open}, nil
}

// WithPrefix is the same Redis with other queues: the name of each begins with
// prefix there, which must not hold braces. So several gateways, or tests, share one
// Redis.
func (c Conn) WithPrefix(prefix string) Conn {
	c.prefix = prefix
	return c
}

// MakeRedisClient opens a client of its own for asynq and asynqmon.
func (c Conn) MakeRedisClient() any { return c.open() }

// Client opens a client of its own for something else that is kept in this Redis.
func (c Conn) Client() redis.UniversalClient { return c.open() }

// queueName is what the queue is called in Redis.
func (c Conn) queueName(queue string) string { return c.prefix + queue }

// ping asks, in a cluster, each node that holds a queue. It deletes keys that do not exist, since a
// replica, which is no master any more or not yet, answers PING and refuses writes.
func (c Conn) ping(ctx context.Context, r redis.UniversalClient) error {
	writes := r.Pipeline()
	for _, name := range email.Queues() {
		writes.Del(ctx, ownKey(c.queueName(name), "ping"))
	}
	_, err := writes.Exec(ctx)
	return wrapped("ping redis", err)
}

func single(u *url.URL) (func() redis.UniversalClient, error) {
	o, err := redis.ParseURL(u.String())
	if err != nil {
		return nil, err
	}
	bound(&o.DialTimeout, &o.ReadTimeout, &o.WriteTimeout)
	o.ContextTimeoutEnabled = true // else a context's deadline does not end a read
	return func() redis.UniversalClient { return redis.NewClient(o) }, nil
}

func sentinel(u *url.URL) (func() redis.UniversalClient, error) {
	q := u.Query()
	if name := q.Get("master"); name != "" {
		q.Del("master")
		q.Set("master_name", name)
		u.RawQuery = q.Encode()
	}
	o, err := redis.ParseFailoverURL(u.String())
	if err != nil {
		return nil, err
	}
	if o.MasterName == "" {
		return nil, errors.New("a sentinel URL needs ?master=name")
	}
	bound(&o.DialTimeout, &o.ReadTimeout, &o.WriteTimeout)
	anyServerName(o.TLSConfig, len(o.SentinelAddrs))
	o.ContextTimeoutEnabled = true
	return func() redis.UniversalClient { return redis.NewFailoverClient(o) }, nil
}

func cluster(u *url.URL) (func() redis.UniversalClient, error) {
	o, err := redis.ParseClusterURL(u.String())
	if err != nil {
		return nil, err
	}
	bound(&o.DialTimeout, &o.ReadTimeout, &o.WriteTimeout)
	anyServerName(o.TLSConfig, len(o.Addrs))
	o.ContextTimeoutEnabled = true
	return func() redis.UniversalClient {
		client := redis.NewClusterClient(o)
		guardNodes(client)
		return client
	}, nil
}

// parseHosts splits scheme://host1,host2 into the URL's kind (what follows the - in
// its scheme) and the form that go-redis reads, scheme://host1?addr=host2. The hosts
// are taken out first: a list of them is not what net/url calls a host.
func parseHosts(text string) (u *url.URL, kind string, err error) {
	scheme, rest, _ := strings.Cut(text, "://")
	scheme, kind, _ = strings.Cut(scheme, "-")
	end := strings.IndexAny(rest, "/?")
	if end < 0 {
		end = len(rest)
	}
	user := strings.LastIndexByte(rest[:end], '@') + 1
	hosts := strings.Split(rest[user:end], ",")
	path, _, _ := strings.Cut(rest[end:], "?")
	u, err = url.Parse(scheme + "://" + rest[:user] + hosts[0] + rest[end:])
	if err != nil || scheme != "unix" && strings.Contains(path, "@") {
		// net/url's own error quotes what may be a part of the password, and go-redis would
		// quote as its database what follows a slash in one.
		return nil, "", errors.New("it is none; special characters in a password must be escaped")
	}
	q := u.Query()
	for _, host := range hosts[1:] {
		if _, _, err := net.SplitHostPort(host); err != nil {
			host = net.JoinHostPort(strings.Trim(host, "[]"), "6379")
		}
		q.Add("addr", host)
	}
	u.RawQuery = q.Encode()
	return u, kind, nil
}

// anyServerName lets each host show a certificate for its own name: go-redis would
// hold all of them to the first one's.
func anyServerName(c *tls.Config, hosts int) {
	if c != nil && hosts > 1 {
		c.ServerName = ""
	}
}

func bound(timeouts ...*time.Duration) {
	for _, t := range timeouts {
		if *t == 0 {
			*t = ioTimeout
		}
	}
}
