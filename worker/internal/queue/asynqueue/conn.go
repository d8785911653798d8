package asynqueue

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"email-gateway/shared/email"
)

// ioTimeout bounds dialing, one read and one write. It is shorter than the defaults of go-redis (5 s and 3 s), because a
// command to a frozen Redis is repeated three times, and a shutdown waits for all of that.
const ioTimeout = 2 * time.Second

// Conn is the address of a Redis and the prefix of the queue names. Make one with ParseURL; the
// zero Conn is invalid.
type Conn struct {
	connect func() redis.UniversalClient
	prefix  string
	marker  *marker // nil = any installation's
}

// ParseURL parses a Redis URL:
//
//	redis://user:password@host:6379/0         one server; rediss:// with TLS
//	unix:///run/redis.sock?db=0               one server, by its socket
//	redis-sentinel://host1:26379,host2:26379/0?master=name
//	redis-cluster://host1:6379,host2:6379
//
// The default port is 6379. The last two exist with rediss- too. In a sentinel URL, user and
// password are the sentinels'; those of Redis are set by ?username=…&password=…. Of the options of
// go-redis, those in options are supported (?pool_size=50).
//
// ParseURL does not connect. Errors do not include the URL, which contains a password.
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
	return Conn{connect: open}, nil
}

// open makes a client. The hook of the marker is the outer one, before those of the caller.
func (c Conn) open() redis.UniversalClient {
	client := c.connect()
	if c.marker != nil {
		client.AddHook(guard{c.marker, client})
	}
	return client
}

// WithPrefix returns the same Redis with a prefix for all queue names, which must not contain
// braces. It lets several gateways, or tests, share one Redis.
func (c Conn) WithPrefix(prefix string) Conn {
	c.prefix = prefix
	return c
}

// MakeRedisClient opens a separate client for asynq or asynqmon.
func (c Conn) MakeRedisClient() any { return c.open() }

// Client opens a separate client for other data in this Redis.
func (c Conn) Client() redis.UniversalClient { return c.open() }

// queueName is the queue's name in Redis.
func (c Conn) queueName(queue string) string { return c.prefix + queue }

// ping checks, in a cluster, each node that has a queue. It sets keys that expire after a second: a replica answers
// PING but refuses writes, and a full Redis accepts a DEL. It compares the marker again: a Redis that was flushed has
// none.
func (c Conn) ping(ctx context.Context, r redis.UniversalClient) error {
	if c.marker != nil {
		if err := c.marker.check(ctx, r); errors.Is(err, errForeign) {
			return err
		}
	}
	writes := r.Pipeline()
	for _, name := range email.Queues() {
		writes.Set(ctx, ownKey(c.queueName(name), "ping"), "", time.Second)
	}
	_, err := writes.Exec(ctx)
	return wrap("ping redis", err)
}

// wrap returns err with the failed operation, or nil.
func wrap(operation string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", operation, err)
}

func single(u *url.URL) (func() redis.UniversalClient, error) {
	o, err := redis.ParseURL(u.String())
	if err != nil {
		return nil, err
	}
	bound(&o.DialTimeout, &o.ReadTimeout, &o.WriteTimeout)
	o.ContextTimeoutEnabled = true // otherwise a context's deadline does not end a read
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
	if o.TLSConfig != nil {
		o.Dialer = nodeDialer(o.TLSConfig, o.SentinelAddrs, o.DialTimeout)
	}
	o.ContextTimeoutEnabled = true
	return func() redis.UniversalClient { return redis.NewFailoverClient(o) }, nil
}

func cluster(u *url.URL) (func() redis.UniversalClient, error) {
	if path := strings.Trim(u.Path, "/"); path != "" && path != "0" {
		return nil, errors.New("a Redis Cluster has only database 0: give each installation a Cluster of its own")
	}
	o, err := redis.ParseClusterURL(u.String())
	if err != nil {
		return nil, err
	}
	bound(&o.DialTimeout, &o.ReadTimeout, &o.WriteTimeout)
	if o.TLSConfig != nil {
		o.Dialer = nodeDialer(o.TLSConfig, o.Addrs, o.DialTimeout)
	}
	o.ContextTimeoutEnabled = true
	return func() redis.UniversalClient {
		client := redis.NewClusterClient(o)
		guardNodes(client)
		return client
	}, nil
}

// options are the supported options of a URL. Most of go-redis's others read the queues from replicas, and one of these ends
// the program with a sentinel URL; context_timeout_enabled is always on, and unstable_resp3 is of no use for the queues.
var options = []string{
	"db", "master", "master_name", "username", "password", "addr", "skip_verify", "protocol", "client_name",
	"dial_timeout", "read_timeout", "write_timeout", "max_retries", "min_retry_backoff", "max_retry_backoff", "max_redirects",
	"pool_size", "pool_timeout", "pool_fifo", "min_idle_conns", "max_idle_conns", "max_active_conns", "conn_max_idle_time", "conn_max_lifetime",
	"idle_timeout", "max_conn_age", "disableIdentity", "identitySuffix", "failing_timeout_seconds",
}

// parseHosts splits scheme://host1,host2 into the URL's kind (the part of the scheme after the
// hyphen) and the form that go-redis reads, scheme://host1?addr=host2. It removes the list of hosts
// first, because net/url rejects one.
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
		// The error of net/url may contain a part of the password, and go-redis's error the part after a slash, which it reads
		// as the database.
		return nil, "", errors.New("not a valid URL; special characters in a password must be percent-encoded")
	}
	q := u.Query()
	for name := range q {
		if !slices.Contains(options, name) { // the name may be a part of a password with a question mark
			return nil, "", errors.New("an option is not supported; supported are " + strings.Join(options, ", "))
		}
	}
	for _, host := range hosts[1:] {
		if _, _, err := net.SplitHostPort(host); err != nil {
			host = net.JoinHostPort(strings.Trim(host, "[]"), "6379")
		}
		q.Add("addr", host)
	}
	u.RawQuery = q.Encode()
	return u, kind, nil
}

func bound(timeouts ...*time.Duration) {
	for _, t := range timeouts {
		if *t == 0 {
			*t = ioTimeout
		}
	}
}
