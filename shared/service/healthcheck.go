package service

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"
)

// Healthcheck asks the program that listens on addr, as its own configuration names
// it, whether it lives. It stands behind the -healthcheck flag of the programs, for
// containers that hold no other program to ask with.
func Healthcheck(ctx context.Context, addr string) error {
	address, err := LocalAddress(addr)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/livez", http.NoBody)
	if err != nil {
		return fmt.Errorf("ask for a sign of life: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("ask for a sign of life: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("ask for a sign of life: %s", response.Status)
	}
	return nil
}

// LocalAddress is where a program of this machine is reached that listens on addr.
func LocalAddress(addr string) (string, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", fmt.Errorf("read address: %w", err)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1" // it listens everywhere
	}
	return net.JoinHostPort(host, port), nil
}
