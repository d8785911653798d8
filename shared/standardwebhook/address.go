package standardwebhook

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"

	"email-gateway/shared/clientip"
)

// refusedNetworks are the networks, besides private and special ones that netip recognizes, that an
// endpoint must not be in: addresses of the gateway's own network, of the provider's metadata
// services, and addresses that contain an IPv4 address.
var refusedNetworks = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),       // this network
	netip.MustParsePrefix("100.64.0.0/10"),   // carrier-grade NAT; Alibaba's metadata service is 100.100.100.200
	netip.MustParsePrefix("192.0.0.0/24"),    // protocol assignments; Oracle's metadata service is 192.0.0.192
	netip.MustParsePrefix("192.0.2.0/24"),    // documentation
	netip.MustParsePrefix("192.88.99.0/24"),  // 6to4 relays
	netip.MustParsePrefix("198.18.0.0/15"),   // benchmarking
	netip.MustParsePrefix("198.51.100.0/24"), // documentation
	netip.MustParsePrefix("203.0.113.0/24"),  // documentation
	netip.MustParsePrefix("240.0.0.0/4"),     // reserved, with the broadcast address
	netip.MustParsePrefix("168.63.129.16/32"),
	netip.MustParsePrefix("2001::/23"),     // protocol assignments, with Teredo
	netip.MustParsePrefix("2001:db8::/32"), // documentation
	netip.MustParsePrefix("2002::/16"),     // 6to4
	netip.MustParsePrefix("3fff::/20"),     // documentation
}

// globalUnicast has the IPv6 addresses that IANA assigns to the public internet. Outside of it are translations of IPv4
// addresses (NAT64, SIIT, IPv4-compatible), site-local addresses and segment routing.
var globalUnicast = netip.MustParsePrefix("2000::/3")

// PublicAddress reports whether an endpoint may have the address: a public unicast address.
// Metadata services of clouds are link-local, unique-local or in refusedNetworks.
func PublicAddress(address netip.Addr) bool {
	address = address.Unmap().WithZone("")
	if !address.IsValid() || !address.IsGlobalUnicast() || address.IsPrivate() {
		return false // loopback, link-local, multicast and unspecified addresses are not global unicast
	}
	if address.Is6() && !globalUnicast.Contains(address) {
		return false
	}
	for _, network := range refusedNetworks {
		if network.Contains(address) {
			return false
		}
	}
	return true
}

// maxURL bounds the URL of an endpoint, in bytes.
const maxURL = 2048

// Reasons why a URL cannot be an endpoint's. Their texts continue after the field's name.
var (
	ErrURL      = errors.New("must be an absolute https:// URL with a host, at most 2048 characters, without user, password and fragment")
	ErrHTTPS    = errors.New("must begin with https://")
	ErrPrivate  = errors.New("must have a public address: private, loopback, link-local and other special addresses are refused")
	ErrRefused  = errors.New("must not have an address in a network that the operator of this gateway refuses")
	errNotASCII = fmt.Errorf("%w, in ASCII: write an international host name as xn--…", ErrURL)
)

// Policy says which URLs and addresses endpoints may have. The zero value permits https:// and public addresses.
type Policy struct {
	// AllowPrivate permits http:// and addresses that are not public.
	AllowPrivate bool
	// Refused are networks that no endpoint may be in, also if AllowPrivate is set.
	Refused []netip.Prefix
}

// CheckAddress returns ErrPrivate or ErrRefused if no endpoint may have the address.
func (p Policy) CheckAddress(address netip.Addr) error {
	address = address.Unmap().WithZone("") // a Prefix contains neither mapped addresses nor zones
	switch {
	case clientip.Contains(p.Refused, address):
		return ErrRefused
	case !p.AllowPrivate && !PublicAddress(address):
		return ErrPrivate
	}
	return nil
}

// CheckURL checks the URL of an endpoint. The addresses of a host name are checked when the worker
// connects, because they can change.
func (p Policy) CheckURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil, len(text) > maxURL, u.Opaque != "", u.Hostname() == "", u.User != nil, strings.Contains(text, "#"):
		return ErrURL
	case strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r >= 0x7f }):
		return errNotASCII
	case u.Scheme == "http" && !p.AllowPrivate:
		return ErrHTTPS
	case u.Scheme != "http" && u.Scheme != "https":
		return ErrURL
	}
	host := strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
	if !p.AllowPrivate && (host == "localhost" || strings.HasSuffix(host, ".localhost")) {
		return ErrPrivate
	}
	if address, err := netip.ParseAddr(host); err == nil {
		return p.CheckAddress(address)
	}
	return nil
}
