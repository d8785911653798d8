// Package pgurl parses postgres:// URLs, also with several hosts, which net/url and the driver do
// not support. All programs use it to connect.
package pgurl

import (
	"errors"
	"net"
	"net/url"
	"strings"
)

// errMalformed replaces the parser's and the driver's own errors, which quote the URL, and with it the password.
var errMalformed = errors.New("DATABASE_URL must be postgres://user:password@host:port/database, with / # ? and % in the password percent-encoded; several hosts have commas between them")

const defaultPort = "5432"

// Parse parses a URL. Several hosts, as in
// postgres://a:5432,b:5432/db?target_session_attrs=read-write, become its parameters host and port,
// where the driver expects them.
func Parse(raw string) (*url.URL, error) {
	scheme, rest, found := strings.Cut(raw, "://")
	if !found || scheme != "postgres" && scheme != "postgresql" {
		return nil, errMalformed
	}
	authority := rest
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		authority = rest[:end]
	}
	hosts := authority[strings.LastIndexByte(authority, '@')+1:]
	if !strings.Contains(hosts, ",") {
		u, err := url.Parse(raw)
		if err != nil {
			return nil, errMalformed
		}
		return u, nil
	}
	user := authority[:len(authority)-len(hosts)]
	u, err := url.Parse(scheme + "://" + user + rest[len(authority):])
	if err != nil || u.Query().Has("host") || u.Query().Has("port") {
		return nil, errMalformed
	}
	var names, ports []string
	for address := range strings.SplitSeq(hosts, ",") {
		name, port, err := splitPort(address)
		if err != nil || name == "" {
			return nil, errMalformed
		}
		names, ports = append(names, name), append(ports, port)
	}
	q := u.Query()
	q.Set("host", strings.Join(names, ","))
	q.Set("port", strings.Join(ports, ","))
	u.RawQuery = q.Encode()
	return u, nil
}

// Hosts returns the names or addresses of the servers in a URL from Parse, without ports.
func Hosts(u *url.URL) []string {
	if q := u.Query(); q.Has("host") {
		return strings.Split(q.Get("host"), ",")
	}
	return []string{u.Hostname()}
}

// splitPort splits host:port, [address]:port, and either without a port.
func splitPort(address string) (host, port string, err error) {
	if bare := strings.TrimSuffix(strings.TrimPrefix(address, "["), "]"); len(bare) == len(address)-2 || !strings.Contains(address, ":") {
		return bare, defaultPort, nil
	}
	return net.SplitHostPort(address)
}
