// Package clientip determines the client address of a request, and limits failed attempts per
// address. The api uses it for keys, the worker for its dashboard.
package clientip

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
)

// Proxies are the networks whose X-Forwarded-For is trusted. The zero value trusts none: the client
// is the peer of the connection.
type Proxies []netip.Prefix

// UnmarshalText parses networks and addresses separated by commas.
func (p *Proxies) UnmarshalText(text []byte) error {
	networks, err := ParseNetworks(string(text))
	*p = networks
	return err
}

// Networks is a setting with networks and addresses separated by commas.
type Networks []netip.Prefix

// UnmarshalText parses networks and addresses separated by commas.
func (n *Networks) UnmarshalText(text []byte) error {
	networks, err := ParseNetworks(string(text))
	*n = networks
	return err
}

// ParseNetworks parses CIDRs (10.0.0.0/8, 2001:db8::/32) and single addresses separated by commas.
// Bits after the prefix must be 0: 10.1.2.3/8 is usually a mistake.
func ParseNetworks(text string) ([]netip.Prefix, error) {
	var networks []netip.Prefix
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		network, err := parseNetwork(part)
		if err != nil {
			return nil, err
		}
		networks = append(networks, network)
	}
	return networks, nil
}

func parseNetwork(text string) (netip.Prefix, error) {
	if !strings.Contains(text, "/") {
		address, err := netip.ParseAddr(text)
		if err != nil || address.Zone() != "" {
			return netip.Prefix{}, fmt.Errorf("%q is neither a network such as 10.0.0.0/8 nor an address", text)
		}
		address = address.Unmap()
		return netip.PrefixFrom(address, address.BitLen()), nil
	}
	network, err := netip.ParsePrefix(text)
	if err != nil || network.Addr().Is4In6() {
		return netip.Prefix{}, fmt.Errorf("%q is neither a network such as 10.0.0.0/8 nor an address", text)
	}
	if network.Masked() != network {
		return netip.Prefix{}, fmt.Errorf("%q has bits set after its prefix; the network is %s", text, network.Masked())
	}
	return network, nil
}

// Contains reports whether one of the networks contains the address.
func Contains(networks []netip.Prefix, address netip.Addr) bool {
	for _, network := range networks {
		if network.Contains(address) {
			return true
		}
	}
	return false
}

// Of is the client address of a request: the peer's, unless it is a trusted proxy; then the
// right-most entry of X-Forwarded-For that is not a trusted proxy. Entries further left may be
// forged by the client. An invalid entry ends the search at the proxy that wrote it. The zero Addr
// means that the connection has none.
func (p Proxies) Of(r *http.Request) netip.Addr {
	found := parseAddress(r.RemoteAddr)
	if len(p) == 0 || !Contains(p, found) {
		return found
	}
	entries := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for i := len(entries) - 1; i >= 0; i-- {
		address := parseAddress(strings.TrimSpace(entries[i]))
		if !address.IsValid() {
			return found
		}
		found = address
		if !Contains(p, address) {
			return found
		}
	}
	return found
}

// parseAddress parses an address with or without a port, and [address] as proxies write it.
func parseAddress(text string) netip.Addr {
	if at, err := netip.ParseAddrPort(text); err == nil {
		return at.Addr().Unmap().WithZone("")
	}
	address, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(text, "["), "]"))
	if err != nil {
		return netip.Addr{}
	}
	return address.Unmap().WithZone("")
}
