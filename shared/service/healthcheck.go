package service

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"
)

// Healthcheck checks that the program listening on addr is alive. It implements the programs'
// -healthcheck flag, for containers without an HTTP client.
func Healthcheck(ctx context.Context, addr string) error {
	address, err := LocalAddress(addr)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/livez", http.NoBody)
	if err != nil {
		return fmt.Errorf("check health: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("check health: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("check health: %s", response.Status)
	}
	return nil
}

// LocalAddress is the address at which a local program that listens on addr can be reached.
func LocalAddress(addr string) (string, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", fmt.Errorf("read address: %w", err)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1" // it listens on all interfaces
	}
	return net.JoinHostPort(host, port), nil
}
