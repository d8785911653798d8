// Command ses-sim runs the SES simulator of package sessim: set SES_ENDPOINT to its URL, and open
// its inbox in a browser. It is started by dev.sh, the end-to-end tests and the benchmarks.
//
// SES_SIM_ADDR (127.0.0.1:8005; port 0 selects a free one) is its listen address,
// SES_SIM_MAX_SEND_RATE (10000) the send rate that GetAccount reports. SES_SIM_EVENTS_URL is the
// endpoint for events of accepted mails, through a simulated SNS (default: none),
// SES_SIM_EVENTS_TOPIC the topic's ARN, SES_SIM_EVENTS_BASE_URL the simulator's URL as seen by that
// endpoint (default: http:// and the listen address), SES_SIM_EVENTS_SIGNATURE 1 or 2.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"email-gateway/scripts/sessim"
	"email-gateway/shared/service"
)

// grace is how long calls in flight may continue after the signal to stop. Calls that a fault holds
// for longer are aborted.
const grace = 3 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if err := run(ctx, os.Args[1:], os.Getenv, log); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			log.Error("ses-sim stops", "error", err)
		}
		os.Exit(1)
	}
}

// run serves until ctx ends.
func run(ctx context.Context, args []string, getenv func(string) string, log *slog.Logger) error {
	cfg, addr, healthcheck, err := configure(args, getenv)
	if err != nil {
		return err
	}
	if healthcheck {
		return service.Healthcheck(ctx, addr)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	sim := sessim.New(cfg)
	defer sim.Close()
	if err := sim.Publish(publication(getenv, listener.Addr().String())); err != nil {
		_ = listener.Close()
		return fmt.Errorf("SES_SIM_EVENTS_…: %w", err)
	}
	server := &http.Server{Handler: sim, ReadHeaderTimeout: 10 * time.Second}
	log.Info("ses-sim listens", "addr", listener.Addr().String())

	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	return shutDown(server, sim)
}

func shutDown(server *http.Server, sim *sessim.Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	err := server.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		sim.Close()
		err = server.Close()
	}
	if err != nil {
		return fmt.Errorf("stop: %w", err)
	}
	return nil
}
