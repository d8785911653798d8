package e2e_test

import (
	"fmt"
	"io"
	"maps"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// namespace is a network namespace with one link to the machine. Its programs reach services on the machine's
// loopback through forwarders at the machine's end of the link.
type namespace struct {
	t    *testing.T
	name string
	host string // the machine's address on the link
}

// newNamespace creates a namespace, which is removed when the test ends. It needs root and iproute2: without them it
// returns nil and what is missing.
func newNamespace(t *testing.T) (n *namespace, missing string) {
	t.Helper()
	if os.Geteuid() != 0 {
		return nil, "only root can make a network namespace"
	}
	if _, err := exec.LookPath("ip"); err != nil {
		return nil, "there is no ip command: install iproute2"
	}
	id := os.Getpid() % 10_000
	n = &namespace{t: t, name: fmt.Sprint("gateway", id), host: fmt.Sprintf("10.213.%d.1", id%250)}
	if out, err := exec.CommandContext(t.Context(), "ip", "netns", "add", n.name).CombinedOutput(); err != nil {
		return nil, fmt.Sprintf("no network namespace can be made here: %v: %s", err, out) // a root without that right, as in a container
	}
	t.Cleanup(func() { n.ip("netns", "del", n.name) }) // its end of the link goes with it, and so does the other
	// Both ends have permanent neighbor entries, as if a router were between them: otherwise a cut is reported as "no
	// route to host" after some seconds without ARP responses.
	const host, guest = "02:00:00:00:00:01", "02:00:00:00:00:02"
	inside := strings.TrimSuffix(n.host, "1") + "2"
	n.ip("link", "add", n.link(), "address", host, "type", "veth", "peer", "name", "eth0", "address", guest, "netns", n.name)
	n.ip("addr", "add", n.host+"/30", "dev", n.link())
	n.ip("link", "set", n.link(), "up")
	n.ip("-n", n.name, "addr", "add", inside+"/30", "dev", "eth0")
	n.ip("-n", n.name, "link", "set", "eth0", "up")
	n.ip("-n", n.name, "link", "set", "lo", "up")
	n.ip("-n", n.name, "neigh", "replace", n.host, "lladdr", host, "nud", "permanent", "dev", "eth0")
	return n, ""
}

// link is the machine's end.
func (n *namespace) link() string { return n.name }

// cut drops packets in both directions without an error to either end.
func (n *namespace) cut() { n.t.Helper(); n.ip("link", "set", n.link(), "down") }

// mend ends a cut.
func (n *namespace) mend() { n.t.Helper(); n.ip("link", "set", n.link(), "up") }

func (n *namespace) ip(args ...string) {
	n.t.Helper()
	// The test's context may have ended: clean-up runs after it.
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		n.t.Errorf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// start runs a built program in the namespace. The settings named by urls lead through forwarders.
func (n *namespace) start(name string, env map[string]string, urls ...string) *program {
	n.t.Helper()
	inside := maps.Clone(env)
	for _, key := range urls {
		inside[key] = n.forward(env[key])
	}
	path := filepath.Join(n.t.TempDir(), name)
	script := fmt.Sprintf("#!/bin/sh\nexec ip netns exec %s %s\n", n.name, filepath.Join(binDir, name))
	if err := os.WriteFile(path, []byte(script), 0o700); err != nil { //nolint:gosec // it must be executable
		n.t.Fatal(err)
	}
	return startProgramAt(n.t, path, inside)
}

// forward returns a service's URL as reachable from the namespace.
func (n *namespace) forward(service string) string {
	n.t.Helper()
	u, err := url.Parse(service)
	if err != nil {
		n.t.Fatal(err)
	}
	listener, err := net.Listen("tcp", n.host+":0")
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = listener.Close() })
	go func(upstream string) {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go forwardConn(client, upstream)
		}
	}(u.Host)
	u.Host = listener.Addr().String()
	return u.String()
}

// forwardConn forwards one connection until one of its ends is closed.
func forwardConn(client net.Conn, upstream string) {
	defer func() { _ = client.Close() }()
	server, err := net.Dial("tcp", upstream)
	if err != nil {
		return
	}
	go func() {
		_, _ = io.Copy(server, client)
		_ = server.Close()
	}()
	_, _ = io.Copy(client, server)
}
