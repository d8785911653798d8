package asynqueue

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"time"
)

// nodeDialer connects by TLS to the nodes of a Sentinel or Cluster installation, at the addresses that they announce. A node's
// certificate must be valid for the announced host, or for the URL's host if hosts has only this one: nodes of managed clusters
// announce IP addresses and share a certificate for that name. go-redis itself requires the name of the URL's first host of every
// node.
func nodeDialer(config *tls.Config, hosts []string, timeout time.Duration) func(ctx context.Context, network, addr string) (net.Conn, error) {
	connect := func(ctx context.Context, network, addr, name string) (net.Conn, error) {
		c := config.Clone()
		c.ServerName = name // "" = the host of addr
		// The keep-alive period is go-redis's.
		dialer := tls.Dialer{NetDialer: &net.Dialer{Timeout: timeout, KeepAlive: 5 * time.Minute}, Config: c}
		return dialer.DialContext(ctx, network, addr)
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := connect(ctx, network, addr, "")
		var other x509.HostnameError
		if len(hosts) > 1 || !errors.As(err, &other) {
			return conn, err
		}
		host, _, err := net.SplitHostPort(hosts[0])
		if err != nil {
			return nil, err
		}
		return connect(ctx, network, addr, host)
	}
}
