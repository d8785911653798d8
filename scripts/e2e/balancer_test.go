package e2e_test

import (
	"encoding/csv"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// balancer is HAProxy in front of several apis. It checks /readyz every 100 ms and stops using an api after two 503
// responses. A response may take 2 s, because the machine may be busy.
type balancer struct {
	t       *testing.T
	addr    string // of the apis, balanced
	control string // of HAProxy's runtime API
}

const balancerConfig = `
global
	stats socket ipv4@%s level admin
defaults
	mode http
	timeout connect 2s
	timeout client 30s
	timeout server 30s
	timeout check 2s
frontend tenants
	bind %s
	default_backend apis
backend apis
	balance roundrobin
	option httpchk GET /readyz
	default-server check inter 100ms fall 2 rise 2
`

// startBalancer starts HAProxy for the apis at the addresses. Its servers are named api0, api1 and so on.
func startBalancer(t *testing.T, apis ...string) *balancer {
	t.Helper()
	b := &balancer{t: t, addr: freeAddress(t), control: freeAddress(t)}
	config := fmt.Sprintf(balancerConfig, b.control, b.addr)
	for i, addr := range apis {
		config += fmt.Sprintf("\tserver api%d %s\n", i, addr)
	}
	path := filepath.Join(t.TempDir(), "haproxy.cfg")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	haproxy, err := exec.LookPath("haproxy")
	if err != nil {
		haproxy = "/usr/sbin/haproxy" // where Debian has it, which not every PATH contains
	}
	startOther(t, os.Environ(), haproxy, "-db", "-f", path)
	for i := range apis {
		b.await(i, "UP")
	}
	return b
}

// await waits until HAProxy reports the api in a state: UP, DOWN, DRAIN.
func (b *balancer) await(api int, state string) {
	b.t.Helper()
	eventually(b.t, func() error {
		is, _, err := b.state(api)
		if err == nil && !strings.HasPrefix(is, state) {
			err = fmt.Errorf("api%d is %s, want %s", api, is, state)
		}
		return err
	})
}

// drain stops new requests to the api and returns when it has none left.
func (b *balancer) drain(api int) {
	b.t.Helper()
	b.command(fmt.Sprintf("set server apis/api%d state drain", api))
	eventually(b.t, func() error {
		_, current, err := b.state(api)
		if err == nil && current != "0" {
			err = fmt.Errorf("api%d has %s requests", api, current)
		}
		return err
	})
}

// undrain reverses drain.
func (b *balancer) undrain(api int) {
	b.t.Helper()
	b.command(fmt.Sprintf("set server apis/api%d state ready", api))
	b.await(api, "UP")
}

// state returns the api's status and its number of requests in progress.
func (b *balancer) state(api int) (status, current string, err error) {
	text, err := b.ask("show stat")
	if err != nil {
		return "", "", err
	}
	rows, err := csv.NewReader(strings.NewReader(strings.TrimPrefix(text, "# "))).ReadAll()
	if err != nil {
		return "", "", fmt.Errorf("read HAProxy's statistics: %w", err)
	}
	column := map[string]int{}
	for i, name := range rows[0] {
		column[name] = i
	}
	for _, row := range rows {
		if row[column["svname"]] == fmt.Sprintf("api%d", api) {
			return row[column["status"]], row[column["scur"]], nil
		}
	}
	return "", "", fmt.Errorf("HAProxy has no api%d", api)
}

func (b *balancer) command(line string) {
	b.t.Helper()
	if text, err := b.ask(line); err != nil || strings.TrimSpace(text) != "" {
		b.t.Fatalf("%s: %q, %v", line, text, err)
	}
}

// ask runs one command of HAProxy's runtime API.
func (b *balancer) ask(line string) (string, error) {
	conn, err := net.Dial("tcp", b.control)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, line+"\n"); err != nil {
		return "", err
	}
	text, err := io.ReadAll(conn)
	return string(text), err
}
