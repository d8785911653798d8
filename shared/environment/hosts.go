package environment

import (
	"net"
	"strings"
)

// SplitHosts returns one URL per host of a URL with several hosts, as used for clusters
// (scheme://user:password@a:1,b:2/path): net/url and most libraries parse one host only. All other
// parts are the same in each.
func SplitHosts(raw string) []string {
	scheme, rest, found := strings.Cut(raw, "://")
	if !found {
		return []string{raw}
	}
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	host := strings.LastIndexByte(rest[:end], '@') + 1
	var urls []string
	for one := range strings.SplitSeq(rest[host:end], ",") {
		urls = append(urls, scheme+"://"+rest[:host]+one+rest[end:])
	}
	return urls
}

// IsLocal reports whether a host name or address leads to this machine only.
func IsLocal(host string) bool {
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && (ip.IsLoopback() || ip.IsUnspecified())
}
