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

// errAddress: the host name of an endpoint resolved to an address that endpoints may not have.
var errAddress = errors.New("a webhook endpoint may not have this address")

// newDialer returns a dialer that connects only to the addresses that the policy permits. It checks the resolved
// address of each connection right before connect(2), so a host name that later resolves to another address is checked
// again. An HTTP redirect or a proxy cannot bypass the check, because the sender follows no redirects and uses no
// proxy.
func newDialer(policy standardwebhook.Policy, resolver *net.Resolver) *net.Dialer {
	return &net.Dialer{
		Timeout: dialTime, KeepAlive: 15 * time.Second, Resolver: resolver,
		// Control is called right before a socket connects to the address.
		Control: func(network, address string, _ syscall.RawConn) error {
			target, err := netip.ParseAddrPort(address)
			if err != nil {
				return fmt.Errorf("%w: %s", errAddress, network)
			}
			if policy.CheckAddress(target.Addr()) != nil {
				return errAddress
			}
			return nil
		},
	}
}
