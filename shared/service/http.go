package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// HTTP is a service that serves HTTP on one address.
type HTTP struct {
	log      *slog.Logger
	addr     string
	server   *http.Server
	listener net.Listener
}

// Timeouts for slow clients: 15 s for the headers, because TCP sends a packet that was lost three
// times again after 7 s, and a client or server without processor time needs seconds too; a minute
// for the whole request (2 MiB at 35 KiB/s), a minute for the response. Idle connections are kept for longer than load
// balancers keep them, which is up to 600 s: a server that closes one at the moment at which the balancer
// sends a request on it makes the balancer answer 502, and its client cannot know whether an email was accepted.
const (
	headerTimeout = 15 * time.Second
	readTimeout   = time.Minute
	writeTimeout  = time.Minute
	idleTimeout   = 620 * time.Second
)

// NewHTTP returns a server for addr (host:port, port 0 for any free one).
func NewHTTP(log *slog.Logger, addr string, handler http.Handler) *HTTP {
	return &HTTP{log: log, addr: addr, server: &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    64 << 10,
		ConnContext:       withConn, // for ResetOnClose
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}}
}

// Start listens; requests are served in the background.
func (h *HTTP) Start(ctx context.Context, failed func(error)) error {
	var config net.ListenConfig
	var err error
	if h.listener, err = config.Listen(ctx, "tcp", h.addr); err != nil {
		return err
	}
	h.log.Info("listening", "address", h.listener.Addr().String())
	go func() {
		if err := h.server.Serve(h.listener); !errors.Is(err, http.ErrServerClosed) {
			failed(err)
		}
	}()
	return nil
}

// Addr is the address it listens on. Call it after Start.
func (h *HTTP) Addr() string { return h.listener.Addr().String() }

// Stop accepts no new requests and waits for running ones.
func (h *HTTP) Stop(ctx context.Context) error {
	if err := h.server.Shutdown(ctx); err != nil {
		return fmt.Errorf("drain: %w", errors.Join(err, h.server.Close()))
	}
	return nil
}
