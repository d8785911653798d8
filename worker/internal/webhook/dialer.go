package webhook

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"email-gateway/shared/standardwebhook"
)

// errAddress: the host name of an endpoint resolved to an address that is not public.
var errAddress = errors.New("the address is not public")

// newDialer returns a dialer that connects only to public addresses, unless private is set. It checks the resolved
// address of each connection right before connect(2), so a host name that later resolves to another address is checked
// again. An HTTP redirect or a proxy cannot bypass the check, because the sender follows no redirects and uses no
// proxy.
func newDialer(private bool, resolver *net.Resolver) *net.Dialer {
	d := &net.Dialer{Timeout: dialTime, KeepAlive: 15 * time.Second, Resolver: resolver}
	if !private {
		d.Control = refusePrivate
	}
	return d
}

// refusePrivate rejects an address that is not public, right before a socket connects to it.
func refusePrivate(network, address string, _ syscall.RawConn) error {
	target, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: %s", errAddress, network)
	}
	if !standardwebhook.PublicAddress(target.Addr()) {
		return errAddress
	}
	return nil
}
