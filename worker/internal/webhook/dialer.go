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

// newDialer returns a dialer that connects only to public addresses, unless private is set. The
// check runs for each connection on the resolved address, right before connect(2): a host name
// that resolves to another address than before is checked again, and an HTTP redirect or a proxy
// cannot bypass it, because the sender follows none and uses none.
func newDialer(private bool, resolver *net.Resolver) *net.Dialer {
	d := &net.Dialer{Timeout: dialTime, KeepAlive: 15 * time.Second, Resolver: resolver}
	if !private {
		d.Control = refusePrivate
	}
	return d
}

// refusePrivate is called with the address that a socket is about to connect to.
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
