package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// Server is an HTTP server in this process: a stand-in for SES, for a tenant's webhook endpoint or for a
// load balancer.
type Server struct {
	Addr string // host:port
	URL  string

	http *http.Server
}

// Serve starts a server at the address; port 0 selects a free one.
func Serve(addr string, server *http.Server) (*Server, error) {
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("start server: %w", err)
	}
	server.ReadHeaderTimeout = cmp.Or(server.ReadHeaderTimeout, 10*time.Second)
	s := &Server{Addr: listener.Addr().String(), http: server}
	s.URL = "http://" + s.Addr
	go func() { _ = server.Serve(listener) }() // ends with Close
	return s, nil
}

// Close closes all connections; new ones are refused.
func (s *Server) Close() error {
	if err := s.http.Close(); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("stop server at %s: %w", s.Addr, err)
	}
	return nil
}
