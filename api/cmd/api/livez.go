package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"email-gateway/api/internal/config"
)

// askLivez is what a container without curl runs as its health check.
func askLivez(ctx context.Context, environ []string) error {
	addr, err := config.ReadAddr(environ)
	if err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("read API_ADDR: %w", err)
	}
	if ip := net.ParseIP(host); host == "" || ip.IsUnspecified() {
		host = "127.0.0.1" // it listens everywhere, here too
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(host, port)+"/livez", http.NoBody)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("/livez answered %s", response.Status)
	}
	return nil
}
